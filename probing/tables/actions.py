"""The table of the actions: what was changed in a training from outside, and by whom."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS
from .records import Table, choice, closing, count, seconds, text

ACTION_STATES = ("done", "in force", "undone", "refused", "timed out", "failed", "overwritten")
"""How an action stands."""

ACTIONS = Table(
    name="actions",
    kind="recorded",
    doc="One row per change by `act`, written before it is applied: a row without a state has"
    " not come to its end.",
    columns=(
        count("action_id", "Its number, as `act list` has it.", bits=32),
        text("name", "The action, as the command calls it."),
        text("arguments", "What was asked for."),
        *closing(
            count("step", "The training step before which it was applied."),
            choice(
                "state",
                ACTION_STATES,
                "`in force` until undone or replaced; `done`: over; `refused`, `timed out`,"
                " `failed`: nothing was changed; `overwritten`: nothing was left to undo. NULL"
                " until known.",
            ),
            text(
                "changes",
                "What it changed, from what to what; NULL when there is no room for texts.",
            ),
            text("notes", "What it has told beside that."),
            count("undoes", "The number of the action that it took back."),
        ),
        count("uid", "The user who sent it, if by the socket."),
        count("pid", "The process that sent it, if by the socket."),
        text("address", "The address it came from, if by TCP."),
        *closing(
            seconds("waited_s", "How long it waited for the end of a step."),
            seconds("pause_s", "How long the training stood still for it."),
        ),
        DURATION,
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
