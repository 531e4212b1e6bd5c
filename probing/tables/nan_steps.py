"""The table of the steps whose loss or gradients were not finite.

Rules of this file: see the package. It is empty until `act nan-guard` is in force.
"""

from __future__ import annotations

from .columns import FAILED, SEQ, STEP
from .records import Column, Table

NAN_OUTCOMES = ("warned", "skipped", "raised", "stepped")
"""What the guard has done about a step."""

NAN_STEPS = Table(
    name="nan_steps",
    kind="recorded",
    doc="One row per optimizer step that `probing PID act nan-guard` has found bad: its loss or its"
    " gradients were NaN or infinite as the optimizer was about to use them. A step that a gradient"
    " scaler leaves out never comes to the optimizer and has no row; `skipped` of python.steps"
    " counts those.",
    columns=(
        STEP,
        Column(name="action_id", type="int64", bits=32, doc="The guard, in python.actions."),
        Column(
            name="outcome",
            type="enum",
            values=NAN_OUTCOMES,
            closing=True,
            doc="`warned`: the optimizer has stepped with it. `skipped`: it has changed nothing,"
            " and the gradients are 0. `raised`: the training got probing.nan_guard.NonFiniteStep."
            " `stepped`: it was to be skipped, but this optimizer changes parameters that have no"
            " gradient. NULL where the step has not ended.",
        ),
        Column(
            name="consecutive",
            type="int64",
            closing=True,
            doc="The how many-th bad step of this optimizer in a row it is.",
        ),
        Column(
            name="loss",
            type="float64",
            closing=True,
            doc="The loss of the last backward pass, without its scale; NULL where it was not known"
            " yet.",
        ),
        Column(
            name="bad_parameters",
            type="int64",
            closing=True,
            doc="Parameters of the optimizer with a gradient that is not finite.",
        ),
        Column(
            name="parameter",
            type="text",
            closing=True,
            doc="The first of them, by its name in the model; else its place in the optimizer.",
        ),
        Column(name="optimizer", type="text", closing=True, doc="The class of the optimizer."),
        FAILED,
        Column(name="start_ns", type="time", unit="ns", doc="When it was found."),
        SEQ,
    ),
)
