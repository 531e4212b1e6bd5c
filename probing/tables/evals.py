"""The table of the code that was sent to a process: who did what to the job.

Rules of this file: see the package.
"""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS
from .records import Table, choice, count, flag, seconds, text

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
        count("eval_id", "Its number, as `probing PID jobs` has it.", bits=32),
        count(
            "step",
            "The training step at that moment, the last one where it was repeated; NULL where none"
            " is counted, and while the code waits or runs.",
            closing=True,
        ),
        choice(
            "state",
            EVAL_STATES,
            "How it ended: `raised` by an exception of its own; `interrupted` by its time limit;"
            " `vetoed` by an audit hook of the process; `not run` when no safe point came. NULL"
            " until then.",
            closing=True,
        ),
        text("error_type", "The exception that ended it, if any.", closing=True),
        count("uid", "The user who has sent it, if by the socket."),
        count("pid", "The process that has sent it, if by the socket."),
        text("address", "The address it came from, if by TCP."),
        text(
            "code",
            "The code, at most 1,000 characters of it; NULL when there is no more room for texts.",
        ),
        text("code_sha256", "The first 16 digits of the SHA-256 of all the code; NULL as `code`."),
        count("code_bytes", "How long the code is."),
        flag(
            "is_held", "Whether the training stood still at a safe point meanwhile.", closing=True
        ),
        count("runs", "How often it was run.", closing=True),
        seconds("waited_s", "How long it waited for a safe point.", closing=True),
        DURATION,
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
