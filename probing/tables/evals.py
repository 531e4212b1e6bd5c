"""The table of the code that was sent to a process: who did what to the job.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS, seconds
from .records import Column, Table

EVAL_STATES = (
    "done",
    "raised",
    "interrupted",
    "cancelled",
    "vetoed",
    "not run",
)
"""How an eval ended."""

EVALS = Table(
    name="evals",
    kind="recorded",
    doc="Code that was run in the process by `eval` and its like, a row each time: who, when, what,"
    " how long, how it ended. The row stands before the code runs, so that one without an end is"
    " that of code which has not come back. An eval that is repeated has one row.",
    columns=(
        Column(
            name="eval_id", type="int64", bits=32, doc="Its number, as `probing PID jobs` has it."
        ),
        Column(
            name="step",
            type="int64",
            closing=True,
            doc="The training step at that moment, the last one where it was repeated; NULL where"
            " none is counted, and while the code waits or runs.",
        ),
        Column(
            name="state",
            type="enum",
            values=EVAL_STATES,
            closing=True,
            doc="How it ended: `raised` by an exception of its own; `interrupted` by its time"
            " limit; `vetoed` by an audit hook of the process; `not run` when no safe point came."
            " NULL until then.",
        ),
        Column(
            name="error_type", type="text", closing=True, doc="The exception that ended it, if any."
        ),
        Column(name="uid", type="int64", doc="The user who has sent it, if by the socket."),
        Column(name="pid", type="int64", doc="The process that has sent it, if by the socket."),
        Column(name="address", type="text", doc="The address it came from, if by TCP."),
        Column(
            name="code",
            type="text",
            doc="The code, at most 1,000 characters of it; NULL when there is no more room for"
            " texts.",
        ),
        Column(
            name="code_sha256",
            type="text",
            doc="The first 16 digits of the SHA-256 of all the code; NULL as `code`.",
        ),
        Column(name="code_bytes", type="int64", doc="How long the code is."),
        Column(
            name="is_held",
            type="bool",
            closing=True,
            doc="Whether the training stood still at a safe point meanwhile.",
        ),
        Column(name="runs", type="int64", closing=True, doc="How often it was run."),
        seconds("waited_s", "How long it waited for a safe point."),
        DURATION,
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
