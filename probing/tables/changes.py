"""The table of what was asked of the agent itself: its settings, its work, its way in and out.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS
from .records import OWN_SCHEMA, Column, Table

CHANGE_STATES = ("done", "vetoed", "refused", "failed")
"""How a change ended."""

CHANGES = Table(
    name="changes",
    schema=OWN_SCHEMA,
    kind="recorded",
    doc="What was asked of the agent beside code and actions, and is more than to read: a row each,"
    " who, when, what, how it ended. The row stands before it is done, so that one without a state"
    " is of what has not come to its end. Code is in python.evals, actions are in python.actions.",
    columns=(
        Column(name="change_id", type="int64", bits=32, doc="Its number."),
        Column(
            name="name",
            type="text",
            doc="What was asked for: `attach` and `detach`, `set` of a setting, `arm`, `profile`,"
            " `record` and `snapshot` of allocations, `fit`, `cancel` of an eval. The audit event"
            " is called the same, with `probing.` before it.",
        ),
        Column(
            name="arguments",
            type="text",
            doc="With which arguments; NULL where there are none, or no more room for texts.",
        ),
        Column(
            name="state",
            type="enum",
            values=CHANGE_STATES,
            closing=True,
            doc="How it ended: `vetoed` by an audit hook of the process; `refused` as it was asked"
            " for, or as things were; `failed` in the doing, or given up. NULL until then.",
        ),
        Column(name="error", type="text", closing=True, doc="Why it was not done."),
        Column(name="uid", type="int64", doc="The user who has asked, if by the socket."),
        Column(name="pid", type="int64", doc="The process that has asked, if by the socket."),
        Column(name="address", type="text", doc="The address it came from, if by TCP."),
        DURATION,
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
