"""The table of the steps whose loss or gradients were not finite.

Rules of this file: see the package. It is empty until `act nan-guard` is in force.
"""

from __future__ import annotations

from .columns import FAILED, SEQ, STEP
from .records import Table, choice, closing, count, moment, number, text

NAN_OUTCOMES = ("warned", "skipped", "raised", "stepped")
"""What the guard has done about a step."""

NAN_STEPS = Table(
    name="nan_steps",
    kind="recorded",
    doc="One row per optimizer step whose loss or gradients `probing PID act nan-guard` found"
    " NaN or infinite. Steps skipped by a gradient scaler have no row: see `skipped` of"
    " python.steps.",
    columns=(
        STEP,
        count("action_id", "The guard, in python.actions.", bits=32),
        *closing(
            choice(
                "outcome",
                NAN_OUTCOMES,
                "`warned`: the optimizer stepped. `skipped`: nothing changed, the gradients are"
                " 0. `raised`: the training got probing.nan_guard.NonFiniteStep. `stepped`: to be"
                " skipped, but this optimizer changes parameters without gradients. NULL until the"
                " step has ended.",
            ),
            count("consecutive", "Which bad step of this optimizer in a row it is."),
            number("loss", "The loss of the last backward pass, unscaled."),
            count(
                "bad_parameters", "Parameters of the optimizer with a gradient that is not finite."
            ),
            text(
                "parameter",
                "The first of them, by its name in the model; else its place in the optimizer.",
            ),
            text("optimizer", "The class of the optimizer."),
        ),
        FAILED,
        moment("start_ns", "When it was found."),
        SEQ,
    ),
)
