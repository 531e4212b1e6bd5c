"""The rows of a ring as columns that DuckDB takes by the Arrow C data interface.

Rules of this file: what a stored value becomes is what `arrow_tables` says, whose place it takes
(both are compared by tests). What is not asked for is NULL, and takes no memory.
"""

from __future__ import annotations

import itertools
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
from .scan import Columns, Raw, Room

Field = tuple[str, str]
Made = tuple[Any, ...]
"""What the C part makes a column of; see `take_column` there."""

_NOTHING, _GIVEN = "z", "="
_STEP, _MOST_STEP = 1 << 14, 1 << 17
"""How many rows a batch has: few enough for the processor's cache, and more where there are so many
texts that handing those over with each batch costs more."""
_FORMATS = {"int64": "l", "time": "l", "float64": "g", "bool": "b", "text": "u", "enum": "u"}
_KINDS = {"int64": "l", "time": "l", "float64": "g", "bool": "b", "text": "n", "enum": "e"}


def fields_of(table: Table, prefix: str = "") -> list[Field]:
    """Names and types of a table's columns, as the C part takes them."""
    return [(f"{prefix}{column.name}", _FORMATS[column.type]) for column in table.columns]


class Batch:
    """The rows of one table, to be taken by the Arrow C stream protocol again and again.

    They come piece by piece, and the values of each piece are made when it is asked for.

    Args:
        runs: Where they stand, see `Columns`.
        places: How many places were read.
    """

    def __init__(
        self, table: Table, length: int, runs: bytes, places: int, columns: Sequence[Made]
    ) -> None:
        self.table = table
        self.length = length
        self._columns = tuple(columns)
        words = max((made[-1][0] for made in columns if made[-1] is not None), default=0)
        step = min(max(_STEP, 4 * words), _MOST_STEP, max(1, self.length))
        self._how = length, runs, places, -(-step // 8) * 8

    def stream(self, prefix: str = "", places: Sequence[int] | None = None) -> Any:
        """A capsule of a stream of them.

        Args:
            prefix: What stands in front of each column's name.
            places: Those of the columns that it has, in this order; all of them without any.
        """
        fields, columns = fields_of(self.table, prefix), self._columns
        if places:
            fields, columns = [fields[at] for at in places], tuple([columns[at] for at in places])
        return IN_C.arrow_stream(fields, *self._how, columns, NULL_INT, NULL_FLOAT_BITS)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.stream()


def empty_batch(table: Table) -> Batch:
    """A table without rows."""
    return Batch(table, 0, b"", 0, [_nothing(column) for column in table.columns])


def batch_of(
    columns: Columns, texts: Sequence[str | None], wanted: Collection[str] | None
) -> Batch:
    """The rows of a ring as the table they belong to; see `arrow_tables.to_arrow`."""
    table = table_in(columns.header)
    decoder = _Decoder(columns, texts[1:])
    arrays = [
        decoder.column(table, column)
        if wanted is None or column.name in wanted
        else _nothing(column)
        for column in table.columns
    ]
    return Batch(table, columns.length, columns.runs, len(columns.states), arrays)


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


def _nothing(column: Column) -> Made:
    """NULL in every row."""
    return _NOTHING, words_of(()) if _FORMATS[column.type] == "u" else None


class _Decoder:
    """Turns the raw columns of one reading into those of the table."""

    def __init__(self, columns: Columns, texts: Sequence[str | None]) -> None:
        self._columns = columns
        self._raw_texts = texts
        self._texts: tuple[Any, ...] | None = None
        self._seconds: tuple[Any, ...] | None = None

    def column(self, table: Table, column: Column) -> Made:
        """One column of the declared table."""
        if column in IMPLICIT:
            if column == SEQ:
                return self._decode("p", 8, self._columns.numbers)
            return self._decode("f", 1, self._columns.states)
        if column.scaled is not None:
            return self._scaled(table, column, column.scaled.column, column.scaled.factor)
        raw = self._columns.raw.get(column.part_of or column.name)
        if raw is None or _FORMATS[raw.field.type] != _FORMATS[column.type]:
            return _nothing(column)
        if is_inline(raw.field.code):
            return self._inline(raw)
        return self._stored(column, raw.field, raw)

    def _scaled(self, table: Table, column: Column, source: str, factor: float) -> Made:
        raw = self._columns.raw.get(source)
        if raw is None or raw.field.type not in ("int64", "time"):
            return _nothing(column)
        declared = next(c for c in table.columns if c.name == source)
        return self._decode("s", raw.width, raw.data, declared, factor=factor)

    def _stored(self, column: Column, field: StoredField, raw: Raw) -> Made:
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
        raw: Room,
        column: Column | None = None,
        *,
        limit: int = 0,
        add: int = 0,
        factor: float = 0.0,
        words: Any = None,
    ) -> Made:
        """A column by the C part; where it closes a row, open rows have none."""
        states = self._columns.states if column is not None and column.closing else None
        return kind, width, raw, states, limit, add, factor, words

    def _inline(self, raw: Raw) -> Made:
        """The texts that stand in rows themselves, as far as each can be read."""
        count, pairs = self._columns.length, memoryview(self._columns.runs).cast("q")
        runs = (range(at, at + some) for at, some in zip(pairs[::2], pairs[1::2], strict=True))
        states, width, data = self._columns.states, raw.width, raw.data
        numbers: dict[str, int] = {}
        validity, indices, nulls = bytearray((count + 7) // 8), array("i", bytes(4 * count)), 0
        for row, place in enumerate(itertools.chain.from_iterable(runs)):
            text = bytes(data[place * width : (place + 1) * width])
            if states[place] == OPEN or text[:1] == NULL_TEXT:
                nulls += 1
                continue
            word = text.rstrip(b"\0").decode(errors="replace")
            indices[row] = numbers.setdefault(word, len(numbers))
            validity[row >> 3] |= 1 << (row & 7)
        return _GIVEN, nulls, validity if nulls else None, indices.tobytes(), words_of(numbers)
