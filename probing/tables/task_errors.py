"""The table of exceptions that are kept in futures."""

from __future__ import annotations

from .columns import DURATION, DURATION_NS, SEQ, START_NS, STEP, THREAD
from .records import Table, closing, flag, text

TASK_ERRORS = Table(
    name="task_errors",
    kind="recorded",
    rows=256,
    doc="One row per exception that was put into a `concurrent.futures.Future`, as of"
    " `executor.submit(...)`; open until somebody asks for it, or it is gone.",
    columns=(
        STEP._replace(doc="The step in progress as the task failed."),
        text("function", "The outermost function of the task; NULL of another process's."),
        text("line", "The innermost line of it outside of libraries, as `file.py:123`."),
        text("file", "The source file of the function."),
        text("error", "The class of the exception and its message, the first 200 characters."),
        *closing(
            flag("lost", "Whether the future has gone, and the exception with it, unasked."),
        ),
        DURATION._replace(doc="Until it was asked for, or gone; NULL while it is kept."),
        THREAD,
        START_NS,
        DURATION_NS,
        SEQ,
    ),
)
