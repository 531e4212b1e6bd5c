"""The rows of a ring as columns that DuckDB takes by the Arrow C data interface.

Rules of this file: what a stored value becomes is what `arrow_tables` says, whose place it takes
(both are compared by tests). What is not asked for is NULL, and shares one piece of memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ...tables import Column, Table
from ...tables.columns import SEQ
from .. import names
from ..format import (
    IMPLICIT,
    NULL_FLOAT_BITS,
    NULL_INT,
    NULL_TEXT,
    OPEN,
    StoredField,
    is_inline,
)
from ..native import IN_C
from ..peek import table_in
from .scan import Columns, Raw

Field = tuple[str, str]
Buffers = tuple[int, bytes | bytearray | None, bytes | bytearray | memoryview, Any]
"""The count of NULLs, which values are none, the values, and what their numbers mean."""

_FORMATS = {"int64": "l", "time": "l", "float64": "g", "bool": "b", "text": "u", "enum": "u"}
_KINDS = {"int64": "l", "time": "l", "float64": "g", "bool": "b", "text": "n", "enum": "e"}


def fields_of(table: Table, prefix: str = "") -> list[Field]:
    """Names and types of a table's columns, as the C part takes them."""
    return [(f"{prefix}{column.name}", _FORMATS[column.type]) for column in table.columns]


class Batch:
    """The rows of one table, to be taken by the Arrow C stream protocol again and again."""

    def __init__(self, table: Table, length: int, columns: Sequence[Buffers]) -> None:
        self.table = table
        self.length = length
        self._columns = tuple(columns)

    def stream(self, prefix: str = "") -> Any:
        """A capsule of a stream of them.

        Args:
            prefix: What stands in front of each column's name.
        """
        return IN_C.arrow_stream(fields_of(self.table, prefix), self.length, self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.stream()


def empty_batch(table: Table) -> Batch:
    """A table without rows."""
    return Batch(table, 0, [_nothing(column, b"") for column in table.columns])


def batch_of(
    columns: Columns, texts: Sequence[str | None], wanted: Collection[str] | None
) -> Batch:
    """The rows of a ring as the table they belong to; see `arrow_tables.to_arrow`."""
    table = table_in(columns.header)
    decoder = _Decoder(columns, texts[1:])
    arrays = [
        decoder.column(table, column)
        if wanted is None or column.name in wanted
        else decoder.nothing(column)
        for column in table.columns
    ]
    return Batch(table, columns.length, arrays)


def words_of(texts: Iterable[str | None]) -> tuple[Any, ...]:
    """Texts as the dictionary of a column: count, ends, letters, count of NULLs and which."""
    parts = [None if text is None else text.encode("utf-8", "replace") for text in texts]
    offsets, end = array("i", [0]), 0
    validity, nulls = bytearray((len(parts) + 7) // 8), 0
    for place, part in enumerate(parts):
        if part is None:
            nulls += 1
        else:
            end += len(part)
            validity[place >> 3] |= 1 << (place & 7)
        offsets.append(end)
    letters = b"".join([part for part in parts if part is not None])
    return len(parts), offsets.tobytes(), letters, nulls, validity if nulls else None


def _nothing(column: Column, zeros: bytes, length: int = 0) -> Buffers:
    """NULL in every row."""
    words = words_of(()) if _FORMATS[column.type] == "u" else None
    return length, zeros, zeros, words


class _Decoder:
    """Turns the raw columns of one reading into those of the table."""

    def __init__(self, columns: Columns, texts: Sequence[str | None]) -> None:
        self._columns = columns
        self._shown = columns.first, columns.length, columns.places
        self._raw_texts = texts
        self._texts: tuple[Any, ...] | None = None
        self._seconds: tuple[Any, ...] | None = None
        self._zeros = bytes(8 * columns.length)

    def nothing(self, column: Column) -> Buffers:
        """NULL in every row; all such columns share one piece of memory."""
        return _nothing(column, self._zeros, self._columns.length)

    def column(self, table: Table, column: Column) -> Buffers:
        """One column of the declared table."""
        if column in IMPLICIT:
            if column == SEQ:
                return self._decode("p", 8, self._columns.numbers)
            return self._decode("f", 1, self._columns.states)
        if column.scaled is not None:
            return self._scaled(table, column, column.scaled.column, column.scaled.factor)
        raw = self._columns.raw.get(column.part_of or column.name)
        if raw is None or _FORMATS[raw.field.type] != _FORMATS[column.type]:
            return self.nothing(column)
        if is_inline(raw.field.code):
            return self._inline(raw)
        return self._stored(column, raw.field, raw)

    def _scaled(self, table: Table, column: Column, source: str, factor: float) -> Buffers:
        raw = self._columns.raw.get(source)
        if raw is None or raw.field.type not in ("int64", "time"):
            return self.nothing(column)
        declared = next(c for c in table.columns if c.name == source)
        return self._decode("s", raw.width, raw.data, declared, factor=factor)

    def _stored(self, column: Column, field: StoredField, raw: Raw) -> Buffers:
        kind, limit, words = _KINDS[field.type], 0, None
        if field.type == "text":
            limit, words = len(self._raw_texts), self._words(column)
        elif field.type == "enum":
            limit, words = len(field.values), words_of(field.values)
        add = self._columns.header.clock_offset_ns if field.type == "time" else 0
        return self._decode(kind, raw.width, raw.data, column, limit=limit, add=add, words=words)

    def _words(self, column: Column) -> tuple[Any, ...]:
        """The texts that the numbers of a column mean."""
        if column.part_of is None:
            self._texts = self._texts or words_of(map(names.first_of, self._raw_texts))
            return self._texts
        self._seconds = self._seconds or words_of(map(names.second_of, self._raw_texts))
        return self._seconds

    def _decode(
        self,
        kind: str,
        width: int,
        raw: bytearray,
        column: Column | None = None,
        *,
        limit: int = 0,
        add: int = 0,
        factor: float = 0.0,
        words: Any = None,
    ) -> Buffers:
        """A column by the C part; where it closes a row, open rows have none."""
        states = self._columns.states if column is not None and column.closing else None
        nulls, validity, data = IN_C.decode(
            kind, width, raw, states, *self._shown, limit, NULL_INT, NULL_FLOAT_BITS, add, factor
        )
        return nulls, validity, data, words

    def _inline(self, raw: Raw) -> Buffers:
        """The texts that stand in rows themselves, as far as each can be read."""
        first, count, places = self._shown
        where = range(first, first + count) if places is None else memoryview(places).cast("q")
        states, width, data = self._columns.states, raw.width, raw.data
        numbers: dict[str, int] = {}
        validity, indices, nulls = bytearray((count + 7) // 8), array("i", bytes(4 * count)), 0
        for row, place in enumerate(where):
            text = bytes(data[place * width : (place + 1) * width])
            if states[place] == OPEN or text[:1] == NULL_TEXT:
                nulls += 1
                continue
            word = text.rstrip(b"\0").decode(errors="replace")
            indices[row] = numbers.setdefault(word, len(numbers))
            validity[row >> 3] |= 1 << (row & 7)
        return nulls, validity if nulls else None, indices.tobytes(), words_of(numbers)
