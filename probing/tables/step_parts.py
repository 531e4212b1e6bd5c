"""The tables of what a training does beside its steps, and of what they consist of.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Table, count, number, seconds, text

OPTIMIZER_STEPS = Table(
    name="optimizer_steps",
    kind="recorded",
    doc="One row per step of an optimizer, with the loss and the gradients that were its own. A"
    " step of the training has as many as its optimizers make; those that step inside one backward"
    " pass share a row.",
    columns=(
        STEP,
        text(
            "optimizer",
            "Which optimizer: the name of the variable that holds it, where that is known, else"
            " its class.",
            closing=True,
        ),
        text("class", "Its class.", closing=True),
        count(
            "optimizers",
            "How many optimizers the row is of: more than one where they step in one pass.",
            closing=True,
        ),
        text(
            "model",
            "The models whose parameters it steps, of those that were called in the step, by their"
            " names in `python.modules`.",
            closing=True,
        ),
        number(
            "loss",
            "What `backward()` was called on since the optimizer before had stepped, as"
            " `python.steps` has it; that of the one before, where there was no pass in between.",
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
    doc="One row per evaluation inside a training: calls of models that train nothing, one behind"
    " the other, with the loading of their data between them. They are no steps, and their time is"
    " part of none. A row grows with each call, until the training goes on.",
    columns=(
        STEP._replace(doc="The step of the training that comes next."),
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
