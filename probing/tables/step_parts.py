"""The tables of what a training does beside its steps, and of what they consist of."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD
from .records import Table, closing, count, number, seconds, text

OPTIMIZER_STEPS = Table(
    name="optimizer_steps",
    kind="recorded",
    doc="One row per step of an optimizer, with its own loss and gradients. Optimizers that"
    " step inside one backward pass share a row.",
    columns=(
        STEP,
        *closing(
            text("optimizer", "The variable that holds the optimizer, else its class."),
            text("class", "Its class."),
            count("optimizers", "How many optimizers the row is of."),
            text("model", "The models called in the step whose parameters it steps."),
            number(
                "loss",
                "What `backward()` was called on since the previous optimizer stepped; without a"
                " pass in between, the previous one's.",
            ),
            number("lr", "The rate of its first parameter group."),
            number("grad_norm", "The norm of its gradients before clipping, where it was taken."),
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
    " one; nor is what lies between the step before and them, such as logging and saving. A row"
    " grows until the training goes on.",
    columns=(
        STEP._replace(doc="The step of the training that comes next, or goes on."),
        DURATION,
        *closing(
            text("model", "The first model that was called."),
            count("calls", "Calls of models."),
            count("samples", "Samples: the first dimensions of the models' first inputs."),
            seconds("data_wait_s", "Waiting for a DataLoader's next batch."),
            seconds("forward_s", "In calls of models."),
        ),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
