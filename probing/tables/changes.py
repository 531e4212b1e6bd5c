"""The table of what was asked of the agent itself: its settings, its work, its way in and out."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS
from .records import OWN_SCHEMA, Table, choice, closing, count, text

CHANGE_STATES = ("done", "vetoed", "refused", "failed")
"""How a change ended."""

CHANGES = Table(
    name="changes",
    schema=OWN_SCHEMA,
    kind="recorded",
    doc="One row per request that changes something, beside python.evals and python.actions,"
    " written before it is done: a row without a state has not come to its end.",
    columns=(
        count("change_id", "Its number.", bits=32),
        text(
            "name",
            "`attach`, `detach`, `set` of a setting, `arm`, `profile`, `record` and"
            " `snapshot` of allocations, `fit`, `cancel` of an eval; in the audit event after"
            " `probing.`.",
        ),
        text("arguments", "Its arguments; NULL when there is no room for texts."),
        *closing(
            choice(
                "state",
                CHANGE_STATES,
                "How it ended: `vetoed` by an audit hook; `refused` beforehand; `failed`, or"
                " given up. NULL until then.",
            ),
            text("error", "Why it was not done."),
        ),
        count("uid", "The user who asked, if by the socket."),
        count("pid", "The process that asked, if by the socket."),
        text("address", "The address it came from, if by TCP."),
        DURATION,
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
