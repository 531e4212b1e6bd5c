"""The table of the code that was sent to a process: who did what to the job."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, FAILED, SEQ, START_NS
from .records import Table, choice, closing, count, flag, seconds, text

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
    doc="One row per `eval` or the like, written before the code runs: a row without an end"
    " is code that has not returned. A repeated eval has one row.",
    columns=(
        count("eval_id", "Its number, as `probing PID jobs` has it.", bits=32),
        *closing(
            count(
                "step",
                "The training step then, the last one where repeated; NULL while the code waits"
                " or runs.",
            ),
            choice(
                "state",
                EVAL_STATES,
                "How it ended: `raised` an exception; `interrupted` by its time limit; `vetoed`"
                " by an audit hook; `not run` without a safe point. NULL until then.",
            ),
            text("error_type", "The exception that ended it, if any."),
        ),
        count("uid", "The user who sent it, if by the socket."),
        count("pid", "The process that sent it, if by the socket."),
        text("address", "The address it came from, if by TCP."),
        text("code", "The code, its first 1,000 characters; NULL when there is no room for texts."),
        text("code_sha256", "The first 16 digits of the SHA-256 of all the code."),
        count("code_bytes", "How long the code is."),
        *closing(
            flag("is_held", "Whether the training was held at a safe point."),
            count("runs", "How often it was run."),
            seconds("waited_s", "How long it waited for a safe point."),
        ),
        DURATION,
        FAILED,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
