"""A process, or the runs of a history, as a database of Python's DB-API 2.0 (PEP 249), to be read.

    from probing import dbapi

    with dbapi.connect(4242) as connection:
        rows = connection.execute("SELECT step, loss FROM steps WHERE loss > ?", [2.5]).fetchall()
    with dbapi.connect(history="s3://bucket/probing") as connection:
        runs = pandas.read_sql("FROM probing.processes", connection)

Rules of this file: what PEP 249 asks for and no more; statements run by `probing.connect`, or over
a history. There is nothing to commit: `commit` does nothing, and what would write is refused.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .errors import (
    DamagedHistory,
    HistoryBusy,
    NoHistory,
    ProbingError,
    QueryTimedOut,
    SqlError,
    SqlRefused,
    SqlTooLarge,
    TimedOut,
    Unreachable,
)
from .sql.quoting import with_values

if TYPE_CHECKING:
    import pyarrow as pa

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

Date, Time, Timestamp, Binary = dt.date, dt.time, dt.datetime, bytes


class Warning(Exception):  # noqa: A001 - the names are those of PEP 249
    """See PEP 249; never raised."""


class Error(Exception):
    """The root of what this module raises.

    Attributes:
        help: What to do next.
    """

    help = ""


class InterfaceError(Error):
    """The module was used in a wrong way, such as a closed cursor."""


class DatabaseError(Error):
    """The process gave no answer."""


class DataError(DatabaseError):
    """See PEP 249; never raised."""


class OperationalError(DatabaseError):
    """The process cannot be reached, or took too long."""


class IntegrityError(DatabaseError):
    """See PEP 249; never raised."""


class InternalError(DatabaseError):
    """See PEP 249; never raised."""


class ProgrammingError(DatabaseError):
    """The statement is wrong."""


class NotSupportedError(DatabaseError):
    """The statement would change something."""


class _Types:
    """Compares equal to the names of its types in `Cursor.description`."""

    def __init__(self, *names: str) -> None:
        self._names = re.compile("|".join(names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self._names.match(other) is not None

    def __hash__(self) -> int:
        return hash(self._names)


STRING = _Types("string", "large_string")
BINARY = _Types("binary", "large_binary")
NUMBER = _Types("u?int", "float", "double", "half", "decimal", "bool")
DATETIME = _Types("date", "time", "timestamp", "duration")
ROWID = _Types("$.")
_LISTED_S = 10.0
"""How long a connection to a store goes by one list of its jobs and tables, which costs seconds."""


class _Rows(Protocol):
    """What a statement gives."""

    def to_arrow(self) -> pa.Table:
        """All of it."""


class _Asked(Protocol):
    """What statements are run in."""

    def query(self, sql: str) -> _Rows:
        """Run one."""


class _Runs:
    """All runs of a history."""

    def __init__(self, place: str, timeout_s: float) -> None:
        from .history.stores.address import is_url

        self._place = place if is_url(place) else os.path.abspath(place)
        self._valid_s = _LISTED_S if is_url(place) else 0.0
        self._timeout_s = timeout_s
        self._list()

    def _list(self) -> None:
        """Find out which jobs and tables there are."""
        from .history.query import History

        self._history = History(self._place, timeout_s=self._timeout_s)
        self._listed_s = time.monotonic()

    def query(self, sql: str) -> _Rows:
        """Run a statement over what is there by now, and warn of what was left out."""
        if time.monotonic() - self._listed_s >= self._valid_s:
            self._list()
        rows = self._history.query(sql, timeout_s=self._timeout_s)
        for note in self._history.notes:
            warnings.warn(note, stacklevel=4)
        return rows


class Cursor:
    """Runs statements and hands out their rows as tuples.

    Attributes:
        description: Name and type of each column, and five times None; None before a statement.
        rowcount: How many rows the last statement has given; -1 before one.
        arraysize: How many rows `fetchmany` gives.
    """

    def __init__(self, asked: Callable[[], _Asked]) -> None:
        self.description: list[tuple[str, str, None, None, None, None, None]] | None = None
        self.rowcount = -1
        self.arraysize = 1
        self._opened: Callable[[], _Asked] | None = asked
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement that reads, with a value in the place of each question mark.

        Raises:
            ProgrammingError: It is wrong, or there are more or fewer values than marks.
            DatabaseError: There is no answer.
        """
        asked = self._asked()
        self._rows = self.description = None
        self.rowcount = -1
        try:
            sql = with_values(operation, parameters)
            table = asked.query(sql).to_arrow()
        except ProbingError as error:
            raise _translated(error) from error
        from .sql.answer.values import python_values  # here: pyarrow is loaded by now

        self.description = [
            (field.name, str(field.type), None, None, None, None, None) for field in table.schema
        ]
        self.rowcount = table.num_rows
        columns = [python_values(column) for column in table.columns]
        self._rows = iter(list(zip(*columns, strict=True)))
        return self

    def executemany(self, operation: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Nothing can be written.

        Raises:
            NotSupportedError: Always.
        """
        raise NotSupportedError("executemany is for statements that write; a process is read")

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last."""
        return next(self._left(), None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows."""
        rows, most = self._left(), self.arraysize if size is None else size
        return [row for _, row in zip(range(most), rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._left())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """All rows that are left, one after the other."""
        return self._left()

    def close(self) -> None:
        """Let go of the rows; the cursor can be used no more."""
        self._opened = self._rows = None

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """See PEP 249; does nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """See PEP 249; does nothing."""

    def _asked(self) -> _Asked:
        """What statements are run in, as long as cursor and connection are open."""
        if self._opened is None:
            raise InterfaceError("the cursor is closed")
        return self._opened()

    def _left(self) -> Iterator[tuple[Any, ...]]:
        self._asked()
        if self._rows is None:
            raise InterfaceError("no statement has been executed, or it has failed")
        return self._rows


class Connection:
    """A process, several, or a history, that statements are run in."""

    def __init__(self, asked: _Asked) -> None:
        self._asked: _Asked | None = asked

    def cursor(self) -> Cursor:
        """A cursor."""
        self._open()
        return Cursor(self._open)

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run a statement with a cursor of its own; see `Cursor.execute`."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """There is nothing to commit."""

    def close(self) -> None:
        """Refuse further statements and rows, of cursors that are there, too."""
        self._asked = None

    def _open(self) -> _Asked:
        """What its cursors run statements in, as long as it is open."""
        if self._asked is None:
            raise InterfaceError("the connection is closed")
        return self._asked

    def __enter__(self) -> Connection:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    endpoint: str | int | Sequence[str] | None = None,
    *,
    history: str | None = None,
    token: str | None = None,
    timeout_s: float = 30.0,
) -> Connection:
    """Connect to a process, to all that a list of endpoints means, or to the runs of a history.

    Args:
        endpoint: See `probing.connect`.
        history: A folder, or the address of a place in an object store, in place of an endpoint.

    Raises:
        InterfaceError: Neither of the two was named, or both.
        OperationalError: There is no such process, or no history.
    """
    if (endpoint is None) == (history is None):
        raise InterfaceError("connect takes an endpoint or history=PLACE, one of them")
    try:
        return Connection(_asked(endpoint, history, token, timeout_s))
    except ProbingError as error:
        raise _translated(error) from error


def _asked(
    endpoint: str | int | Sequence[str] | None,
    history: str | None,
    token: str | None,
    timeout_s: float,
) -> _Asked:
    """What is meant."""
    from .api.process import connect as connect_one
    from .api.ranks import connect_many

    if history is not None:
        return _Runs(history, timeout_s)
    if isinstance(endpoint, (str, int)):
        return connect_one(endpoint, token=token, timeout_s=timeout_s)
    return connect_many(endpoint or (), token=token, timeout_s=timeout_s)


def DateFromTicks(ticks: float) -> dt.date:  # noqa: N802 - the name is that of PEP 249
    """The local date at a time of the clock."""
    return dt.datetime.fromtimestamp(ticks).date()  # noqa: DTZ006 - local, says PEP 249


def TimeFromTicks(ticks: float) -> dt.time:  # noqa: N802 - the name is that of PEP 249
    """The local time of day at a time of the clock."""
    return dt.datetime.fromtimestamp(ticks).time()  # noqa: DTZ006 - local, says PEP 249


def TimestampFromTicks(ticks: float) -> dt.datetime:  # noqa: N802 - that of PEP 249
    """The local date and time at a time of the clock."""
    return dt.datetime.fromtimestamp(ticks)  # noqa: DTZ006 - local, says PEP 249


def _translated(error: ProbingError) -> Error:
    kind: type[Error] = DatabaseError
    if error.is_a(SqlRefused):
        kind = NotSupportedError
    elif error.is_a(SqlError, SqlTooLarge):
        kind = ProgrammingError
    elif error.is_a(Unreachable, TimedOut, QueryTimedOut, NoHistory, DamagedHistory, HistoryBusy):
        kind = OperationalError
    same = kind(error.message)
    same.help = error.help
    return same
