"""The table of the actions: what was changed in a training from outside, and by whom.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, seconds
from .records import Column, Table

ACTION_STATES = ("done", "in force", "undone", "refused", "timed out", "failed", "overwritten")
"""How an action stands."""

ACTIONS = Table(
    name="actions",
    kind="recorded",
    doc="Changes made to the running training by `act`, a row each: who, when, what, what it was"
    " before, and how long the training stood still for it. The row stands before the action is"
    " applied, so that one without a state is of an action which has not come to its end.",
    columns=(
        Column(name="action_id", type="int64", bits=32, doc="Its number, as `act list` has it."),
        Column(name="name", type="text", doc="The action, as the command calls it."),
        Column(name="arguments", type="text", doc="What was asked for; NULL where there is none."),
        Column(
            name="step",
            type="int64",
            closing=True,
            doc="The training step before which it was applied; NULL where it was not.",
        ),
        Column(
            name="state",
            type="enum",
            values=ACTION_STATES,
            closing=True,
            doc="`in force` until it is undone, replaced or given up; `done` for one that is over;"
            " `refused`, `timed out` and `failed` ones have changed nothing; an `overwritten` one"
            " was to be undone when nothing was left of it. NULL until it is known.",
        ),
        Column(
            name="changes",
            type="text",
            closing=True,
            doc="What it has changed, from what to what; NULL when there is no more room for"
            " texts.",
        ),
        Column(name="notes", type="text", closing=True, doc="What it has told beside that."),
        Column(
            name="undoes",
            type="int64",
            closing=True,
            doc="The number of the action that this one has taken back.",
        ),
        Column(name="uid", type="int64", doc="The user who has sent it, if by the socket."),
        Column(name="pid", type="int64", doc="The process that has sent it, if by the socket."),
        Column(name="address", type="text", doc="The address it came from, if by TCP."),
        seconds("waited_s", "How long it waited for the end of a step."),
        seconds("pause_s", "How long the training stood still for it."),
        DURATION,
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
