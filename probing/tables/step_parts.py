"""The tables of what a training does beside its steps, and of what they consist of.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, STEP, THREAD, seconds
from .records import Column, Table

OPTIMIZER_STEPS = Table(
    name="optimizer_steps",
    kind="recorded",
    doc="One row per step of an optimizer, with the loss and the gradients that were its own. A"
    " step of the training has as many as its optimizers make; those that step inside one backward"
    " pass share a row.",
    columns=(
        STEP,
        Column(
            name="optimizer",
            type="text",
            closing=True,
            doc="Which optimizer: the name of the variable that holds it, where that is known, else"
            " its class.",
        ),
        Column(name="class", type="text", closing=True, doc="Its class."),
        Column(
            name="optimizers",
            type="int64",
            closing=True,
            doc="How many optimizers the row is of: more than one where they step in one pass.",
        ),
        Column(
            name="model",
            type="text",
            closing=True,
            doc="The models whose parameters it steps, of those that were called in the step, by"
            " their names in `python.modules`.",
        ),
        Column(
            name="loss",
            type="float64",
            closing=True,
            doc="What `backward()` was called on since the optimizer before had stepped, as"
            " `python.steps` has it; that of the one before, where there was no pass in between.",
        ),
        Column(
            name="lr",
            type="float64",
            closing=True,
            doc="The rate of its first parameter group.",
        ),
        Column(
            name="grad_norm",
            type="float64",
            closing=True,
            doc="The norm of its gradients before clipping, where it was taken.",
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
        Column(name="model", type="text", closing=True, doc="The first model that was called."),
        Column(name="calls", type="int64", closing=True, doc="Calls of models."),
        Column(
            name="samples",
            type="int64",
            closing=True,
            doc="Samples: the first dimensions of the models' first inputs.",
        ),
        seconds("data_wait_s", "Waiting for a DataLoader's next batch."),
        seconds("forward_s", "In calls of models."),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
