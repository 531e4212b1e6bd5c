"""The table of the steps whose loss or gradients were not finite.

Rules of this file: see the package. It is empty until `act nan-guard` is in force.
"""

from __future__ import annotations

from .columns import FAILED, SEQ, STEP
from .records import Table, choice, count, moment, number, text

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
        count("action_id", "The guard, in python.actions.", bits=32),
        choice(
            "outcome",
            NAN_OUTCOMES,
            "`warned`: the optimizer has stepped with it. `skipped`: it has changed nothing, and"
            " the gradients are 0. `raised`: the training got probing.nan_guard.NonFiniteStep."
            " `stepped`: it was to be skipped, but this optimizer changes parameters that have no"
            " gradient. NULL where the step has not ended.",
            closing=True,
        ),
        count(
            "consecutive",
            "The how many-th bad step of this optimizer in a row it is.",
            closing=True,
        ),
        number(
            "loss",
            "The loss of the last backward pass, without its scale; NULL where it was not known"
            " yet.",
            closing=True,
        ),
        count(
            "bad_parameters",
            "Parameters of the optimizer with a gradient that is not finite.",
            closing=True,
        ),
        text(
            "parameter",
            "The first of them, by its name in the model; else its place in the optimizer.",
            closing=True,
        ),
        text("optimizer", "The class of the optimizer.", closing=True),
        FAILED,
        moment("start_ns", "When it was found."),
        SEQ,
    ),
)
