"""A process as a database of Python's DB-API 2.0 (PEP 249), for reading.

    from probing import dbapi

    with dbapi.connect(4242) as connection:
        rows = connection.execute("SELECT step, loss FROM steps WHERE loss > ?", [2.5]).fetchall()

Rules of this file: what PEP 249 asks for and no more; statements run by `probing.connect`. There is
nothing to commit: `commit` does nothing, and what would write is refused by the process.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .errors import ProbingError, SqlError, SqlRefused, TimedOut, Unreachable
from .sql.quoting import text_literal

if TYPE_CHECKING:
    from .api.process import Process
    from .api.ranks import Job

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

Date, Time, Timestamp, Binary = dt.date, dt.time, dt.datetime, bytes
_PLACES = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$ | (\?)""",
    re.VERBOSE | re.DOTALL,
)
"""What may hold a question mark that stands for no value, and one that does."""


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


class Cursor:
    """Runs statements and hands out their rows as tuples.

    Attributes:
        description: Name and type of each column, and five times None; None before a statement.
        rowcount: How many rows the last statement has given; -1 before one.
        arraysize: How many rows `fetchmany` gives.
    """

    def __init__(self, asked: Process | Job) -> None:
        self.description: list[tuple[str, str, None, None, None, None, None]] | None = None
        self.rowcount = -1
        self.arraysize = 1
        self._asked: Process | Job | None = asked
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement that reads, with a value in the place of each question mark.

        Raises:
            ProgrammingError: It is wrong, or there are more or fewer values than marks.
            DatabaseError: There is no answer.
        """
        if self._asked is None:
            raise InterfaceError("the cursor is closed")
        sql = _with_values(operation, parameters)
        try:
            answer = self._asked.query(sql)
            table = answer.to_arrow()
        except ProbingError as error:
            raise _translated(error) from error
        self.description = [
            (field.name, str(field.type), None, None, None, None, None) for field in table.schema
        ]
        self.rowcount = table.num_rows
        columns = [column.to_pylist() for column in table.columns]
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
        rows = self._left()
        return [row for _, row in zip(range(size or self.arraysize), rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._left())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """All rows that are left, one after the other."""
        return self._left()

    def close(self) -> None:
        """Let go of the rows; the cursor can be used no more."""
        self._asked = self._rows = None

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """See PEP 249; does nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """See PEP 249; does nothing."""

    def _left(self) -> Iterator[tuple[Any, ...]]:
        if self._rows is None:
            raise InterfaceError("no statement has been executed, or the cursor is closed")
        return self._rows


class Connection:
    """A process, or several, that statements are run in."""

    def __init__(self, asked: Process | Job) -> None:
        self._asked: Process | Job | None = asked

    def cursor(self) -> Cursor:
        """A cursor."""
        if self._asked is None:
            raise InterfaceError("the connection is closed")
        return Cursor(self._asked)

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run a statement with a cursor of its own; see `Cursor.execute`."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """There is nothing to commit."""

    def close(self) -> None:
        """Refuse further statements."""
        self._asked = None

    def __enter__(self) -> Connection:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    endpoint: str | int | Sequence[str], *, token: str | None = None, timeout_s: float = 30.0
) -> Connection:
    """Connect to a process, or to all that a list of endpoints means; see `probing.connect`.

    Raises:
        OperationalError: There is no such process.
    """
    from .api.process import connect as connect_one
    from .api.ranks import connect_many

    try:
        if isinstance(endpoint, (str, int)):
            return Connection(connect_one(endpoint, token=token, timeout_s=timeout_s))
        return Connection(connect_many(endpoint, token=token, timeout_s=timeout_s))
    except ProbingError as error:
        raise _translated(error) from error


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
    if isinstance(error, SqlRefused):
        kind = NotSupportedError
    elif isinstance(error, SqlError):
        kind = ProgrammingError
    elif isinstance(error, (Unreachable, TimedOut)):
        kind = OperationalError
    same = kind(error.message)
    same.help = error.help
    return same


def _with_values(operation: str, parameters: Sequence[Any]) -> str:
    """The statement with a value in the place of each question mark.

    Raises:
        ProgrammingError: There are more values than marks, or fewer, or one is of no known type.
    """
    left = list(parameters)
    marks = 0

    def put(found: re.Match[str]) -> str:
        nonlocal marks
        if found[2] is None:
            return found[0]
        marks += 1
        return _literal(left.pop(0)) if left else "?"

    sql = _PLACES.sub(put, operation)
    if marks != len(parameters):
        raise ProgrammingError(
            f"the statement has {marks} question marks, and {len(parameters)} values were given"
        )
    return sql


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE"
    if isinstance(value, (int, decimal.Decimal)):
        return f"({value})"
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, (bytes, bytearray)):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat(' ')}'::{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'}"
    if isinstance(value, (dt.date, dt.time)):
        return f"'{value.isoformat()}'::{type(value).__name__.upper()}"
    raise ProgrammingError(f"a value of type {type(value).__name__} cannot stand in a statement")
