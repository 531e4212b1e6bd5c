"""The tables of the training itself: module calls and steps.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import (
    ALLOCATED,
    ALLOCATED_BYTES,
    DURATION,
    DURATION_NS,
    FAILED,
    SEQ,
    START_NS,
    STEP,
    THREAD,
)
from .records import Column, Table

STAGES = ("forward", "backward", "optimizer", "step")

TORCH_TRACE = Table(
    name="torch_trace",
    kind="recorded",
    doc="Every call of every torch module, every optimizer step and every whole step. A row is"
    " written when the call starts and completed when it ends, so an open row (`duration IS NULL`)"
    " is what the process is inside of right now, or was when it died.",
    columns=(
        STEP,
        Column(
            name="module",
            type="text",
            doc="The module's qualified name in its root, such as `blocks.3.attn`; the class name"
            " for a root and for an optimizer. Wrappers (DDP, FSDP, torch.compile, activation"
            " checkpointing) leave no trace in it. A shared module goes by its first name.",
        ),
        Column(
            name="stage",
            type="enum",
            values=STAGES,
            doc="`forward`, `backward`, `optimizer` (the optimizer's step) or `step` (from the end"
            " of one optimizer step to the end of the next).",
        ),
        DURATION,
        ALLOCATED,
        Column(name="class", type="text", doc="The class of the module or optimizer."),
        Column(name="root", type="text", doc="The class of the root module it belongs to."),
        Column(
            name="depth",
            type="int64",
            bits=8,
            doc="How many module calls this one is nested in, 255 at most.",
        ),
        Column(
            name="recomputed",
            type="bool",
            doc="Whether it ran inside the backward pass (activation checkpointing).",
        ),
        Column(name="training", type="bool", doc="Whether its root was in training mode."),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        ALLOCATED_BYTES,
        SEQ,
    ),
)

STEPS = Table(
    name="steps",
    kind="recorded",
    doc="One row per training step. The last one is open: it is the step in progress.",
    columns=(
        STEP,
        DURATION,
        ALLOCATED,
        Column(
            name="optimizer",
            type="text",
            closing=True,
            doc="The class of the optimizer that ended it; NULL for a step of inference and for"
            " the step in progress.",
        ),
        FAILED,
        THREAD,
        START_NS,
        DURATION_NS,
        ALLOCATED_BYTES,
        SEQ,
    ),
)
