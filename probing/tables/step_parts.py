"""The tables of what a training does beside its steps, and of what they consist of.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Table, count, number, seconds, text

OPTIMIZER_STEPS = Table(
    name="optimizer_steps",
    kind="recorded",
    doc="One row per step of an optimizer, with its own loss and gradients. Optimizers that"
    " step inside one backward pass share a row.",
    columns=(
        STEP,
        text(
            "optimizer",
            "The variable that holds the optimizer, else its class.",
            closing=True,
        ),
        text("class", "Its class.", closing=True),
        count(
            "optimizers",
            "How many optimizers the row is of.",
            closing=True,
        ),
        text(
            "model",
            "The models called in the step whose parameters it steps.",
            closing=True,
        ),
        number(
            "loss",
            "What `backward()` was called on since the previous optimizer stepped; without a"
            " pass in between, the previous one's.",
            closing=True,
        ),
        number("lr", "The rate of its first parameter group.", closing=True),
        number(
            "grad_norm",
            "The norm of its gradients before clipping, where it was taken.",
            closing=True,
        ),
        FAILED,
        THREAD,
        START_NS,
        SEQ,
    ),
)

EVALUATIONS = Table(
    name="evaluations",
    kind="recorded",
    doc="One row per evaluation inside a training: consecutive calls of models that train"
    " nothing, and the loading of their data. Their time is in no step, but for those amid"
    " one. A row grows until the training goes on.",
    columns=(
        STEP._replace(doc="The step of the training that comes next, or goes on."),
        DURATION,
        text("model", "The first model that was called.", closing=True),
        count("calls", "Calls of models.", closing=True),
        count(
            "samples", "Samples: the first dimensions of the models' first inputs.", closing=True
        ),
        seconds("data_wait_s", "Waiting for a DataLoader's next batch.", closing=True),
        seconds("forward_s", "In calls of models.", closing=True),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
