"""Tables of a script's own: declared once, and a row for each `ScriptTable.add`.

Rules of this file: no torch, no file and no agent: whoever records them says so by
`marks.attend_tables`. Without that nothing happens, so that a script may keep its tables for good.
What is wrong with a declaration is an error at once; `add` raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import marks

if TYPE_CHECKING:
    from ..errors import BadTable
    from ..tables import Column, Table

ROWS = 65_536
"""How many rows a table holds where nobody says."""
TEXT_BYTES = 64
"""How many bytes of a text a row holds where nobody says."""
_MOST_ROWS, _MOST_TEXT_BYTES, _MOST_ROW_BYTES, _MOST_COLUMNS = 1 << 24, 1024, 4000, 60
_MOST_TABLES = 64
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_OURS = frozenset({"thread_id", "start_ns", "seq"})
_OF_HISTORIES = frozenset({"run", "project", "job", "day", "table"})
_OF_MANY = {f"process_{name}": name for name in ("rank", "host", "pid", "job")}
"""What a table over many processes has where the table itself has the other name."""
_TABLES_OF_HISTORIES = frozenset({"processes", "exports"})
_TYPES: Mapping[type, str] = {int: "int64", float: "float64", bool: "bool", str: "text"}

Write = Callable[[Mapping[str, Any]], None]


class ScriptTable:
    """A table that a script has declared by `table`.

    Attributes:
        declared: What it is called and which columns it has.
        rows: How many rows it holds, the newest.
        write: What writes a row; None while nobody records.
    """

    __slots__ = ("declared", "rows", "write")

    def __init__(self, declared: Table, rows: int) -> None:
        self.declared = declared
        self.rows = rows
        self.write: Write | None = None

    def add(self, /, **values: Any) -> None:
        """Record a row; returns at once and raises nothing.

        Args:
            values: What it holds, by the names of the columns. A column that is left out is NULL;
                so is a value of another type, and `status` counts those and names the newest. A
                tensor of one element is a number, and one on a device is not waited for.
        """
        write = self.write
        if write is not None:
            write(values)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is the same table; what it is in another process is declared there, too."""
        return _known_again, (self.declared, self.rows)

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.declared.columns)
        return f"<table {self.declared.full_name} ({columns})>"


def table(
    name: str,
    columns: Mapping[str, type],
    *,
    doc: str = "",
    rows: int = ROWS,
    text_bytes: int = TEXT_BYTES,
) -> ScriptTable:
    """Declare a table of the script's own, or get the one that it has declared so before.

    Rows are on record as long as the agent records; without an agent they go nowhere.

    Args:
        name: What SQL calls it: lower-case letters, digits and ``_``.
        columns: ``int``, ``float``, ``bool`` or ``str`` by the names of the columns. Each row also
            has the training step, unless a column is called ``step``, its time and its thread.
        doc: What a row means, for `probing ENDPOINT tables`.
        rows: How many rows are held, at most 16,777,216; the oldest make room.
        text_bytes: How much of a text a row holds, in bytes of UTF-8, at most 1,024.

    Raises:
        BadTable: There can be no such table, or its name is taken by another one.
    """
    made = declaration(name, columns, doc=doc, rows=rows, text_bytes=text_bytes, origin="script")
    if _is_one_too_many(name):
        raise _error()(name, f"there are {_MOST_TABLES} tables already, and may be no more")
    there = _known(made)
    if there.declared.columns != made.declared.columns:
        raise _error()(name, f"it is declared already, with other columns: {there!r}")
    return there


def _is_one_too_many(name: str) -> bool:
    return name not in marks.own_tables and len(marks.own_tables) >= _MOST_TABLES


def _known(made: ScriptTable) -> ScriptTable:
    """The table of that name, which is this one where there was none, with what writes it."""
    there: ScriptTable = marks.own_tables.setdefault(made.declared.name, made)
    if there.write is None and marks.open_table is not None:
        marks.open_table(there)
    return there


def _known_again(declared: Table, rows: int) -> ScriptTable:
    """A table that was copied, or comes from a file or another process; raises nothing.

    Where it can be none, as with a file from before a table of ours got its name, nobody records
    it.
    """
    from ..tables import TABLES_BY_NAME

    made = ScriptTable(declared, rows)
    can_be = declared.name not in TABLES_BY_NAME and not _is_one_too_many(declared.name)
    return _known(made) if can_be else made


def declaration(
    name: str, columns: Mapping[str, type], *, doc: str, rows: int, text_bytes: int, origin: str
) -> ScriptTable:
    """A table that is declared, and known to nobody yet; see `table`.

    Args:
        origin: Who declares it, see `Table`.

    Raises:
        BadTable: There can be no such table.
    """
    from ..tables import TABLES_BY_NAME, Table

    wrong = _wrong_name(name) or _wrong_columns(columns) or _wrong_sizes(rows, text_bytes)
    if wrong is None and name in TABLES_BY_NAME:
        wrong = f"the name is taken by {TABLES_BY_NAME[name].full_name}: choose another"
    if wrong is None and name in _TABLES_OF_HISTORIES:
        wrong = "a history of runs has a table of that name: choose another"
    if wrong is not None:
        raise _error()(name if isinstance(name, str) else repr(name), wrong)
    made = Table(
        name=name,
        doc=" ".join(str(doc).split())[:500],
        kind="recorded",
        columns=_columns(columns, -(-text_bytes // 8) * 8),
        origin=origin,
    )
    width = sum(column.width or 8 for column in made.columns)
    if width > _MOST_ROW_BYTES:
        why = f"a row would take {width:,} bytes, and may take {_MOST_ROW_BYTES:,}"
        raise _error()(name, f"{why}: give it fewer texts, or a smaller text_bytes")
    return ScriptTable(made, rows)


def _error() -> type[BadTable]:
    from ..errors import BadTable

    return BadTable


def _wrong_name(name: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "a name is lower-case letters, digits and _, at most 63, and begins with a letter"
    return None


def _wrong_columns(columns: object) -> str | None:
    """What is wrong with columns, if anything is."""
    if not isinstance(columns, Mapping) or not columns:
        return "its columns are a dictionary of names and types, such as {'reward': float}"
    if len(columns) > _MOST_COLUMNS:
        return f"it has {len(columns)} columns, and may have {_MOST_COLUMNS}"
    seen: set[str] = set()
    own = {str(name).lower() for name in columns}
    for name, kind in columns.items():
        if not isinstance(name, str) or not _COLUMN.fullmatch(name):
            return f"column {name!r}: a name is letters, digits and _, and begins with a letter"
        if name.lower() in seen:
            return f"column {name}: there are two of that name, for SQL does not mind its case"
        if name.lower() in _OURS:
            return f"column {name}: every table has one of that name already"
        if name.lower() in _OF_HISTORIES:
            return f"column {name}: a history of runs has one of that name: choose another"
        if _OF_MANY.get(name.lower()) in own:
            return f"column {name}: over many processes there are two of that name: choose another"
        if kind not in _TYPES:
            shown = kind.__name__ if isinstance(kind, type) else repr(kind)
            return f"column {name}: a type is int, float, bool or str, and {shown} is none of them"
        seen.add(name.lower())
    return None


def _wrong_sizes(rows: object, text_bytes: object) -> str | None:
    """What is wrong with the sizes of a table, if anything is."""
    limits = (("rows", rows, _MOST_ROWS), ("text_bytes", text_bytes, _MOST_TEXT_BYTES))
    for name, value, most in limits:
        if type(value) is not int or not 1 <= value <= most:
            return f"{name} is a whole number from 1 to {most:,}, and {value!r} is none"
    return None


def _columns(columns: Mapping[str, type], width: int) -> tuple[Column, ...]:
    """The columns of a table: the step, the script's, and whose row it is and when."""
    from ..tables.columns import SEQ, START_NS, THREAD, TOLD_STEP
    from ..tables.records import Column, count

    own = [
        Column(
            name=name,
            type=_TYPES[kind],  # type: ignore[arg-type]
            doc="",
            closing=True,
            width=width if kind is str else 0,
        )
        for name, kind in columns.items()
    ]
    step = count("step", f"{TOLD_STEP.doc} NULL before the first step.")
    has_step = any(name.lower() == "step" for name in columns)
    begun = START_NS._replace(doc="When it was added, since the epoch.")
    return (*(() if has_step else (step,)), *own, THREAD, begun, SEQ)
