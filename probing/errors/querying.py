"""The errors of a statement."""

from __future__ import annotations

import shlex
import sys
from typing import Any, ClassVar

from .root import InternalError, ProbingError, TimedOut

_ASK_AGAIN = "It goes on starting: ask again, or give it more time with --timeout SECONDS."


class SqlError(ProbingError):
    """The SQL engine does not accept or cannot finish the statement.

    Args:
        reason: One line of what is wrong.
        sql: The statement, to point into.
        position: Character offset of the fault in `sql`, if known.
        suggestion: The nearest thing that exists, if any.
    """

    code = "sql"
    status = 400
    exit_code = 1
    help = "`probing ENDPOINT tables` lists every table and column."

    def __init__(
        self,
        reason: str,
        *,
        sql: str = "",
        position: int | None = None,
        suggestion: str | None = None,
    ) -> None:
        self.sql, self.position, self.suggestion = sql, position, suggestion
        message = reason if reason.endswith((".", "!", "?")) else f"{reason}."
        if suggestion:
            message += f" Did you mean {suggestion}?"
        super().__init__(message)

    @property
    def detail(self) -> dict[str, Any]:
        """Where the fault is: ``position`` (character offset), ``line``, ``column`` (from 1)."""
        if self.position is None:
            return {}
        before = self.sql[: self.position]
        return {
            "position": self.position,
            "line": before.count("\n") + 1,
            "column": len(before) - (before.rfind("\n") + 1) + 1,
            "excerpt": self.caret(),
        }

    def caret(self) -> str:
        """The faulty line with a caret under the place, or nothing when it is unknown."""
        if self.position is None:
            return ""
        start = self.sql.rfind("\n", 0, self.position) + 1
        end = self.sql.find("\n", self.position)
        line = self.sql[start : None if end < 0 else end]
        column = self.position - start
        if len(line) > 100:
            cut = max(0, column - 50)
            line, column = line[cut : cut + 100], column - cut
        return f"{line}\n{' ' * column}^"


class SqlRefused(SqlError):
    """The text is not exactly one statement that only reads."""

    code = "sql_refused"
    status = 403
    exit_code = 1
    help = "Send one SELECT, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement."


class SqlTooLarge(SqlError):
    """The statement needs more memory than a query may use."""

    code = "sql_too_large"
    status = 413
    help = "Ask for fewer rows or columns, aggregate, or raise PROBING_QUERY_MEMORY_MIB."


class LiveTooLarge(SqlError):
    """A live table has more rows, or bytes, than an answer may.

    It is not cut, as rows of SQL are: what is counted or joined over a part of them would be wrong.
    """

    code = "live_too_large"
    status = 413

    def __init__(self, table: str, limit: int, of: str, setting: str) -> None:
        super().__init__(
            f"the live table `{table}` has more than the {limit:,} {of} that an answer may have"
        )
        self.help = f"Raise the limit: `probing ENDPOINT config {setting}=...`."


class SqlWorkerDied(SqlError):
    """The statement killed the helper process that ran it; the training process is not touched."""

    code = "sql_worker_died"
    status = 500
    help = (
        "Ask for less at a time; the next statement gets another worker. On the process's own"
        " machine, by its pid, SQL needs none."
    )

    def __init__(self, how: str, *, has_begun: bool = True) -> None:
        what = "the statement ended the SQL worker process"
        super().__init__(f"{what if has_begun else 'the SQL worker process did not start'} ({how})")


class SqlWorkerRests(SqlError):
    """The SQL worker crashed repeatedly; it restarts after a pause."""

    code = "sql_worker_rests"
    status = 503
    help = "Ask again then. On the process's own machine, by its pid, SQL needs no worker."

    def __init__(self, times: int, within_s: float, left_s: float) -> None:
        super().__init__(
            f"the SQL worker process has ended {times} times within {within_s:g} s and is started"
            f" again in {left_s:.1f} s"
        )


class QueryTimedOut(TimedOut):
    """A statement ran into its time limit and was ended.

    Args:
        of: What was asked, where that is not plain.
        is_starting: Whether it has not begun: the SQL worker process was still starting.
    """

    code = "query_timed_out"
    is_stuck = False
    """Whether it could not be interrupted, and still holds the engine that ran it."""

    def __init__(self, seconds: float, *, of: str = "", is_starting: bool = False) -> None:
        message = f"the query{of and f' of {of}'} was ended after its limit of {seconds:g} s."
        if is_starting:
            message = (
                f"the query did not begin within its limit of {seconds:g} s: the SQL worker process"
                " was still starting."
            )
        super().__init__(message, help=_ASK_AGAIN if is_starting else None)

    @property
    def detail(self) -> dict[str, Any]:
        """``is_stuck``, where it is so."""
        return {"is_stuck": True} if self.is_stuck else {}


_NO_THREAD = "can't start new thread"
"""What Python says, by which alone this can be told."""
CLI_PACKAGES = frozenset(
    ("click", "duckdb", "numpy", "prompt_toolkit", "pyarrow", "py_spy", "rich", "tomli")
)
"""What `pip install 'probing-agent[cli]'` brings and `pip install probing-agent` does not."""


class MissingLibrary(ProbingError):
    """What was asked for needs a library that is not installed."""

    code = "missing_library"
    status = 501
    help = "Install it beside probing."
    made_for: ClassVar[str | None] = None
    """Where all is in one file that was made for another Python than this: for which, in words."""

    def __init__(self, library: str) -> None:
        if self.made_for is not None and library in CLI_PACKAGES:
            super().__init__(
                f"this file has DuckDB, NumPy and PyArrow for {self.made_for} alone, and"
                f" {sys.executable} is Python {'.'.join(map(str, sys.version_info[:2]))}.",
                help=f"Run it with {self.made_for}.",
            )
            return
        if library not in CLI_PACKAGES:
            super().__init__(
                f"{library} is not installed.", help=f"`pip install {shlex.quote(library)}`"
            )
            return
        super().__init__(
            f"{library} is not installed in {sys.prefix}: only the agent is.",
            help=f"`{sys.executable} -m pip install 'probing-agent[cli]'`"
            " adds SQL and the commands.",
        )


def missing_library(error: ImportError) -> MissingLibrary | None:
    """The error for an import that failed since only the agent is installed; None otherwise."""
    name = (error.name or "").partition(".")[0]
    is_missing = isinstance(error, ModuleNotFoundError) and name in CLI_PACKAGES
    return MissingLibrary(name) if is_missing else None


def told_of(error: BaseException | None, *, where: str = "") -> ProbingError:
    """What is told of any exception: itself if it is ours, what is lacking here, or our fault.

    Args:
        where: Where it came from, as it stands behind the exception.
    """
    if isinstance(error, ProbingError):
        return error
    missing = missing_library(error) if isinstance(error, ImportError) else None
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        from .serving import NoThread

        return NoThread(_NO_THREAD, is_here=True)
    return missing or InternalError(f"{type(error).__name__}: {error}{where}")
