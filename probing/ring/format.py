"""The ring file's format: what every byte means, for the writer and for the reader.

Rules of this file: layout, header and row markers live here; nothing here opens a file,
reads a clock or starts a thread. The agent writes by it, readers in other processes read
by it; a reader needs only the header, never the writer's version of this code.

A ring file is a header of `HEADER_SIZE` bytes, then ``capacity`` rows of equal width.
Row number ``seq`` (from 1) lives in slot ``seq % capacity``. All numbers little-endian.

A row is ``begin | columns known at the start | columns known at the end | end``, where
both markers hold ``seq * 4 + state``:

- a row is opened by one ``pack_into`` of the whole row, begin marker first and end marker
  last, both with state `OPEN`;
- it is completed by one ``pack_into`` of the closing columns and the end marker, now with
  state `DONE` or `FAILED`.

So a row whose markers name different numbers was caught while it was being written, and
``end & 3`` tells whether it is open. An empty slot is all zeros, and number 0 is never used.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, NamedTuple

from ..errors import RingError
from ..tables import Column, Table
from ..tables.columns import FAILED as FAILED_COLUMN, SEQ

MAGIC = b"PRBRING3"
MOST_BYTES = 1 << 30
"""What a ring file may have; a longer one is none of an agent's."""
HEADER_SIZE = 16384
OPEN, DONE, FAILED = 0, 1, 2

NULL_INT = -(2**63)
NULL_BOOL = 2
NULL_NAME = 0
NULL_TEXT = b"\xff"
"""What a text that stands in its row begins with where it is NULL: no UTF-8 has that byte."""
NULL_FLOAT_BITS = 0x7FF8_DEAD_0000_0000
"""A NaN that no arithmetic makes: stands for NULL, so that a measured NaN stays a NaN."""
NULL_FLOAT: float = struct.unpack("<d", struct.pack("<Q", NULL_FLOAT_BITS))[0]

_FIXED = struct.Struct("<8sIIQqQII")
_SIZES = struct.Struct("<IQq")
_COUNTERS_OFFSET = 32  # of the field `dropped` in _FIXED
DROPPED = struct.Struct("<Q")
MARKER = struct.Struct("<Q")

_CODES = {"int64": "q", "time": "q", "float64": "d", "text": "I", "bool": "B", "enum": "B"}
_NARROW = {8: "B", 32: "I", 64: "q"}
_WIDTHS = {"q": 8, "d": 8, "I": 4, "B": 1}
_MOST_WIDTH = 1024
"""Bytes of a text that stands in its row."""
IMPLICIT = frozenset({SEQ, FAILED_COLUMN})
"""Columns that no row stores: both are read from the row's markers."""


class Field(NamedTuple):
    """A stored column's place in a row."""

    column: Column
    offset: int
    code: str


class RingLayout(NamedTuple):
    """Where a table's columns lie in a row of its ring.

    Attributes:
        opening: Fields written when the row is opened, in their order in the row.
        closing: Fields written when the row is completed, in their order in the row.
        row_size: Bytes of a row, a multiple of 8.
        open_struct: Packs ``begin, *opening, *closing, end``.
        close_struct: Packs ``*closing, end``, to be written at `close_offset`.
    """

    table: Table
    opening: tuple[Field, ...]
    closing: tuple[Field, ...]
    row_size: int
    close_offset: int
    open_struct: struct.Struct
    close_struct: struct.Struct

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields, in their order in the row."""
        return (*self.opening, *self.closing)

    def require(self, columns: str) -> None:
        """Make sure that whoever packs rows by a format of his own knows each column's place.

        Args:
            columns: The name and code of each field, in their order: ``step:I module:I``. What
                packs them leaves no holes but those of the layout.

        Raises:
            AssertionError: The layout is another one.
        """
        found = " ".join(f"{field.column.name}:{field.code}" for field in self.fields)
        if found != " ".join(columns.split()):
            raise AssertionError(f"rows of {self.table.name} are packed by another layout: {found}")


def layout_of(table: Table) -> RingLayout:
    """Lay a recorded table's columns out: wide ones first, so that all are aligned."""
    stored = [c for c in table.stored_columns if c not in IMPLICIT]
    opening, offset, pad = _place([c for c in stored if not c.closing], start=8, widest_first=True)
    closing, end, end_pad = _place(
        [c for c in stored if c.closing], start=offset, widest_first=False
    )
    open_format = "".join(f.code for f in opening) + "x" * pad
    close_format = "".join(f.code for f in closing)
    close_pad = "x" * end_pad
    return RingLayout(
        table=table,
        opening=opening,
        closing=closing,
        row_size=end + 8,
        close_offset=offset,
        open_struct=struct.Struct(f"<Q{open_format}{close_pad}{close_format}Q"),
        close_struct=struct.Struct(f"<{close_pad}{close_format}Q"),
    )


def _code_of(column: Column) -> str:
    """The `struct` code a column is stored by."""
    if column.width:
        return f"{column.width}s"
    return _NARROW[column.bits] if column.type == "int64" else _CODES[column.type]


def is_inline(code: str) -> bool:
    """Whether a field holds a text itself, and not the number of one."""
    return code.endswith("s")


def width_of(code: str) -> int:
    """The bytes of a field.

    Raises:
        KeyError: There is no such code.
        ValueError: There is no such width.
    """
    if not is_inline(code):
        return _WIDTHS[code]
    width = int(code[:-1])
    if not 0 < width <= _MOST_WIDTH:
        raise ValueError(f"a text of {width} bytes stands in no row")
    return width


def _place(
    columns: list[Column], *, start: int, widest_first: bool
) -> tuple[tuple[Field, ...], int, int]:
    """Give each column an offset; returns the fields, the next free offset and the padding.

    Opening columns are padded behind, closing ones in front, so that the closing columns
    and the end marker are one piece without a hole.
    """
    ordered = sorted(columns, key=lambda c: width_of(_code_of(c)), reverse=widest_first)
    pad = -sum(width_of(_code_of(c)) for c in ordered) % 8
    offset = start if widest_first else start + pad
    fields = []
    for column in ordered:
        code = _code_of(column)
        fields.append(Field(column=column, offset=offset, code=code))
        offset += width_of(code)
    return tuple(fields), (offset + pad if widest_first else offset), pad


class StoredField(NamedTuple):
    """What a header says about one column: all that a reader needs to know."""

    name: str
    type: str
    code: str
    offset: int
    unit: str | None
    doc: str
    values: tuple[str, ...]


class RingHeader(NamedTuple):
    """A decoded header.

    Attributes:
        clock_offset_ns: Added to a ``time`` column to get nanoseconds since the epoch.
        dropped: Rows that the writer could not write, or not whole.
        doc: What the table holds.
        origin: Who has declared it, see `Table`.
    """

    table: str
    row_size: int
    capacity: int
    clock_offset_ns: int
    dropped: int
    fields: tuple[StoredField, ...]
    doc: str = ""
    origin: str = ""


def encode_header(layout: RingLayout, *, capacity: int, clock_offset_ns: int) -> bytes:
    """The first `HEADER_SIZE` bytes of a new ring file.

    Raises:
        RingError: The table has too many columns to describe in the header.
    """
    fields = [
        {
            "name": f.column.name,
            "type": f.column.type,
            "code": f.code,
            "offset": f.offset,
            "unit": f.column.unit,
            "doc": f.column.doc,
            "values": f.column.values,
        }
        for f in (*layout.opening, *layout.closing)
    ]
    described: dict[str, Any] = {"table": layout.table.name, "fields": fields}
    if layout.table.origin:  # what no version of ours declares is known by its header alone
        order = [column.name for column in layout.table.columns]
        fields.sort(key=lambda field: order.index(str(field["name"])))
        described |= {"doc": layout.table.doc, "origin": layout.table.origin}
    text = json.dumps(described).encode()
    sizes = (layout.row_size, capacity, clock_offset_ns)
    fixed = _FIXED.pack(MAGIC, HEADER_SIZE, *sizes, 0, len(text), _sum_of(text, *sizes))
    header = fixed + text
    if len(header) > HEADER_SIZE:
        raise RingError(layout.table.name, "its columns do not fit the header")
    return header.ljust(HEADER_SIZE, b"\0")


def decode_header(header: bytes, *, source: str) -> RingHeader:
    """Read a header, trusting nothing in it.

    Raises:
        RingError: These are not the first bytes of a ring file of a known format.
    """
    if len(header) < HEADER_SIZE or header[:8] != MAGIC:
        raise RingError(source, "it is not a ring file of this format")
    _, header_size, row_size, capacity, clock_offset, dropped, length, crc = _FIXED.unpack_from(
        header
    )
    text = header[_FIXED.size : _FIXED.size + length]
    told = _sum_of(text, row_size, capacity, clock_offset)
    if header_size != HEADER_SIZE or len(text) != length or told != crc:
        raise RingError(source, "its header is damaged")
    if not 16 <= row_size <= 4096 or not 1 <= capacity <= 2**32:
        raise RingError(source, "its header gives impossible sizes")
    try:
        described: dict[str, Any] = json.loads(text)
        fields = tuple([_decode_field(item, row_size) for item in described["fields"]])
        table = str(described["table"])
        doc, origin = str(described.get("doc", "")), str(described.get("origin", ""))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RingError(source, f"its header is damaged ({error})") from error
    return RingHeader(
        table=table,
        row_size=row_size,
        capacity=capacity,
        clock_offset_ns=clock_offset,
        dropped=dropped,
        fields=fields,
        doc=doc,
        origin=origin,
    )


def _sum_of(text: bytes, row_size: int, capacity: int, clock_offset_ns: int) -> int:
    """What tells a header from one that is damaged: of all but the count of dropped rows."""
    return zlib.crc32(text, zlib.crc32(_SIZES.pack(row_size, capacity, clock_offset_ns)))


def _decode_field(item: dict[str, Any], row_size: int) -> StoredField:
    """Check one column's description."""
    offset, type_, code = int(item["offset"]), str(item["type"]), str(item["code"])
    if type_ not in _CODES or offset < 8 or offset + width_of(code) > row_size - 8:
        raise ValueError(f"column {item['name']} has an unknown type or lies outside the row")
    return StoredField(
        name=str(item["name"]),
        type=type_,
        code=code,
        offset=offset,
        unit=item["unit"],
        doc=str(item["doc"]),
        values=tuple([str(value) for value in item["values"]]),
    )


def dropped_offset() -> int:
    """Where in the file the writer keeps its count of dropped rows."""
    return _COUNTERS_OFFSET
