"""Rows turned into Arrow: recorded ones from a ring, live ones from the agent's answer.

Rules of this file: what a stored value becomes in SQL is said here: types, NULLs, units. The
columns and their order are the declared table's, whatever the writer's version stored; what
it did not store, and what is not asked for, is NULL and costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import BadRequest
from ..messages import common as wire
from ..tables import TABLES_BY_NAME, Column, Table
from ..tables.columns import SEQ
from . import names, reader as ring_reader
from .columns.recorded import Recorded, read_or_empty, stored_names
from .format import (
    FAILED,
    IMPLICIT,
    NULL_BOOL,
    NULL_FLOAT_BITS,
    NULL_INT,
    NULL_NAME,
    NULL_TEXT,
    OPEN,
    StoredField,
    is_inline,
)
from .peek import table_in
from .reader import RingSnapshot

TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())
_TYPES: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "time": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "text": TEXT_TYPE,
    "enum": TEXT_TYPE,
}

_Array = npt.NDArray[Any]
_Flags = npt.NDArray[np.bool_]


def schema_of(table: Table) -> pa.Schema:
    """The Arrow schema of a table; each field carries its ``doc`` and ``unit``."""
    fields = []
    for column in table.columns:
        metadata = {"doc": column.doc} | ({"unit": column.unit} if column.unit else {})
        fields.append(pa.field(column.name, _TYPES[column.type], metadata=metadata))
    return pa.schema(fields)


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a schema; NULL in those that they lack."""
    arrays = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


class RecordedTable(Recorded):
    """A recorded table of one process, read from its ring file; without one it is empty."""

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """As `load_batch`, by numpy and pyarrow."""
        path = self._folder.ring(self.table.name)
        with self._our_errors(path):
            try:
                snapshot = ring_reader.read_ring(path, stored_names(self.table, columns))
                texts = names.decode_names(read_or_empty(self._folder))
            except FileNotFoundError:
                self._tell_removed(path)
                return schema_of(self.table).empty_table()
        if self._notes is not None:
            lost = without_names(snapshot, texts)
            self._notes.extend(self._damage(snapshot.torn, lost, is_cut=snapshot.is_cut))
        return to_arrow(snapshot, texts, columns)


def to_arrow(
    snapshot: RingSnapshot, texts: Sequence[str | None], columns: Collection[str] | None
) -> pa.Table:
    """The rows of a ring as the table they belong to.

    Args:
        texts: The names file, decoded: item 0 is None. Read it after the ring.
        columns: The columns that are needed; the others come as NULL. None for all.
    """
    table = table_in(snapshot.header)
    decoder = _Decoder(snapshot, texts[1:])
    arrays = [
        decoder.column(table, column)
        if columns is None or column.name in columns
        else decoder.nothing(column)
        for column in table.columns
    ]
    return pa.Table.from_arrays(arrays, schema=schema_of(table))


def live_to_arrow(live: wire.LiveRows, declared: Table | None = None) -> pa.Table:
    """The rows of a live table; a column that the answer lacks is NULL.

    Args:
        declared: What it is, for one that a plugin has added.

    Raises:
        BadRequest: The answer is not one of a table that is known here.
    """
    table = TABLES_BY_NAME.get(live.table, declared)
    if table is None or any(len(row) != len(live.columns) for row in live.rows):
        raise BadRequest(f"the rows of the live table {live.table!r} are not readable")
    schema = schema_of(table)
    places = {name: place for place, name in enumerate(live.columns)}
    arrays = []
    for field in schema:
        place = places.get(field.name)
        values = [None if place is None else row[place] for row in live.rows]
        try:
            arrays.append(_array_of(values, field.type))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise BadRequest(f"{live.table}.{field.name} is not readable ({error})") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _array_of(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Values as a column; what has no UTF-8, as a path of another encoding, has `?` for it."""
    try:
        return pa.array(values, type_)
    except UnicodeEncodeError:
        return pa.array([_as_utf8(value) for value in values], type_)


def _as_utf8(value: Any) -> Any:
    """A text, or a list of texts, of what has UTF-8."""
    if isinstance(value, list | tuple):
        return [_as_utf8(one) for one in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def without_names(snapshot: RingSnapshot, texts: Sequence[str | None]) -> int:
    """How many texts refer to a name that is damaged or missing."""
    is_there = np.array([True, *(text is not None for text in texts[1:])])
    is_whole, lost = bool(is_there.all()), 0
    for field in snapshot.header.fields:
        numbers = snapshot.rows.columns.get(field.name)
        if field.type != "text" or field.code != "I" or numbers is None or not len(numbers):
            continue
        if not is_whole or numbers.max() >= len(is_there):
            inside = numbers[numbers < len(is_there)]
            lost += len(numbers) - int(np.count_nonzero(is_there[inside]))
    return lost


def inline_texts(values: _Array, *, is_open: _Flags) -> pa.Array:
    """The texts that stand in rows themselves; one that is damaged has what can be read of it.

    Args:
        values: Their bytes, padded with zeros.
        is_open: Where a row is not complete: its text is NULL.
    """
    count, width = len(values), values.dtype.itemsize
    letters = np.ascontiguousarray(values).view(np.uint8).reshape(count, width)
    is_null = is_open | (letters[:, 0] == NULL_TEXT[0])
    lengths = np.where(is_null, 0, np.char.str_len(values))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = letters[np.arange(width) < lengths[:, None]]
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.string(), count, buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.view(pa.binary()).to_pylist()
        readable = [None if one is None else one.decode(errors="replace") for one in raw]
        texts = pa.array(readable, pa.string())
    return texts.dictionary_encode()


class _Decoder:
    """Turns the columns of one snapshot into arrays."""

    def __init__(self, snapshot: RingSnapshot, texts: Sequence[str | None]) -> None:
        self._rows = snapshot.rows
        self._length = len(snapshot.rows)
        self._fields = {field.name: field for field in snapshot.header.fields}
        self._clock_offset = snapshot.header.clock_offset_ns
        self._raw = texts
        self._texts = pa.array(map(names.first_of, texts), pa.string())
        self._seconds: pa.Array | None = None
        self._zeros: pa.Buffer | None = None

    def nothing(self, column: Column) -> pa.Array:
        """NULL in every row; all such columns share one piece of untouched memory."""
        if self._zeros is None:
            self._zeros = pa.py_buffer(np.zeros(self._length, np.int64))
        return self._array(column, self._zeros, self._zeros, self._length, ())

    def column(self, table: Table, column: Column) -> pa.Array:
        """One column of the declared table."""
        if column in IMPLICIT:
            return self._implicit(column)
        if column.scaled is not None:
            return self._scaled(table, column, column.scaled.column, column.scaled.factor)
        stored = column.part_of or column.name
        field = self._fields.get(stored)
        if field is None or _TYPES[field.type] != _TYPES[column.type]:
            return self.nothing(column)
        values = self._rows[stored]
        if is_inline(field.code):
            return inline_texts(values, is_open=self._rows.states == OPEN)
        return self._build(column, field, values, self._nulls(column, field, values))

    def _implicit(self, column: Column) -> pa.Array:
        if column == SEQ:
            return pa.array(self._rows.numbers)
        states = self._rows.states
        return self._pack(column, states == FAILED, states == OPEN)

    def _scaled(self, table: Table, column: Column, source: str, factor: float) -> pa.Array:
        field = self._fields.get(source)
        if field is None or field.code not in "qIB":
            return self.nothing(column)
        declared = next(c for c in table.columns if c.name == source)
        values = self._rows[source]
        nulls = self._nulls(declared, field, values)
        return self._pack(column, values * factor, nulls)

    def _nulls(self, column: Column, field: StoredField, values: _Array) -> _Flags | None:
        """Where a stored column is NULL; None when it cannot be."""
        nulls: _Flags | None = None
        if field.type == "float64":
            nulls = values.view(np.uint64) == NULL_FLOAT_BITS
        elif field.type == "bool":
            nulls = values >= NULL_BOOL
        elif field.type == "enum":
            nulls = values >= len(field.values)
        elif field.type == "text":
            nulls = (values == NULL_NAME) | (values > len(self._texts))
        elif field.code == "q":
            nulls = values == NULL_INT
        if column.closing:
            is_open = self._rows.states == OPEN
            nulls = is_open if nulls is None else nulls | is_open
        return nulls

    def _build(
        self, column: Column, field: StoredField, values: _Array, nulls: _Flags | None
    ) -> pa.Array:
        """The array of a stored column."""
        if field.type in ("text", "enum"):
            indices = values.astype(np.int32)
            if field.type == "text":
                indices -= 1
            if nulls is not None:
                indices[nulls] = 0  # no reader may be led outside the dictionary
            words = self._words(column) if field.type == "text" else field.values
            return self._pack(column, indices, nulls, words)
        if field.type == "time":
            return self._pack(column, values + self._clock_offset, nulls)
        if field.type == "bool":
            return self._pack(column, values == 1, nulls)
        wide = np.float64 if field.type == "float64" else np.int64
        return self._pack(column, values.astype(wide, copy=False), nulls)

    def _words(self, column: Column) -> pa.Array:
        """The texts that the numbers of a column mean."""
        if column.part_of is None:
            return self._texts
        if self._seconds is None:
            self._seconds = pa.array(map(names.second_of, self._raw), pa.string())
        return self._seconds

    def _pack(
        self,
        column: Column,
        values: _Array,
        nulls: _Flags | None,
        words: pa.Array | Sequence[str] | None = None,
    ) -> pa.Array:
        """An Arrow array over numpy values, without a copy of them."""
        validity, count = None, 0
        if nulls is not None and (count := int(np.count_nonzero(nulls))):
            validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        if values.dtype == np.bool_:
            values = np.packbits(values, bitorder="little")
        data = pa.py_buffer(np.ascontiguousarray(values))
        return self._array(column, validity, data, count, words)

    def _array(
        self,
        column: Column,
        validity: pa.Buffer | None,
        data: pa.Buffer,
        null_count: int,
        words: pa.Array | Sequence[str] | None,
    ) -> pa.Array:
        """Put buffers together; `words` is the dictionary of a column of texts."""
        kind = _TYPES[column.type]
        if kind != TEXT_TYPE:
            return pa.Array.from_buffers(kind, self._length, [validity, data], null_count)
        dictionary = words if isinstance(words, pa.Array) else pa.array(words, pa.string())
        indices = pa.Array.from_buffers(pa.int32(), self._length, [validity, data], null_count)
        return pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)
