"""What a table and a column are.

Rules of this file: nothing imported but the standard library. The records are named tuples, as are
all that the agent loads at its start: a tenth of what making a dataclass costs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

SCHEMA = "python"
"""Where the tables about the job are."""
OWN_SCHEMA = "probing"
"""Where those about probing itself are."""

ColumnType = Literal["int64", "float64", "bool", "text", "enum", "time"]
"""``int64``, ``float64`` and ``bool`` are what they say. ``text`` is a name interned once
per process, or has a ``width`` and stands in its row. ``enum`` is one of the column's ``values``.
``time`` is nanoseconds since the epoch, stored as the monotonic clock's reading and shifted when it
is read. All may be NULL."""

TableKind = Literal["recorded", "live"]


class Scaled(NamedTuple):
    """A column that is another one times a constant: stored once, readable in two units."""

    column: str
    factor: float


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        name: What SQL calls it.
        type: See `ColumnType`.
        doc: One sentence for the person who reads the answer.
        unit: The unit of a number, or None where it has none.
        values: The possible values of an ``enum``, in the order of their codes.
        scaled: Set for a column that is computed from a stored one when it is read.
        part_of: The stored column of texts whose second part this one is; None for any other.
        closing: True when the value is known only as the row is completed.
        bits: How wide an ``int64`` is stored. Below 64 it is stored unsigned and never NULL.
        width: Bytes of a ``text`` that stands in the row itself, a multiple of 8; 0 for a name.
    """

    name: str
    type: ColumnType
    doc: str
    unit: str | None = None
    values: tuple[str, ...] = ()
    scaled: Scaled | None = None
    part_of: str | None = None
    closing: bool = False
    bits: Literal[8, 32, 64] = 64
    width: int = 0


class Table(NamedTuple):
    """One table.

    Attributes:
        name: Unique in all schemas.
        rows: How many rows a recorded table holds whose ring is made with the training, and written
            by the source of the table's name; None where a source makes its own.
        origin: Who has declared it: ``script``, ``plugin NAME``; empty for probing itself.
    """

    name: str
    doc: str
    kind: TableKind
    columns: tuple[Column, ...]
    schema: str = SCHEMA
    rows: int | None = None
    origin: str = ""

    @property
    def full_name(self) -> str:
        """The name with its schema, as it is written in SQL."""
        return f"{self.schema}.{self.name}"

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns that a row holds, without those computed from others."""
        computed = (c.name for c in self.columns if c.scaled is not None or c.part_of is not None)
        names = frozenset(computed)
        return tuple([column for column in self.columns if column.name not in names])


def text(name: str, doc: str) -> Column:
    """A column of texts."""
    return Column(name=name, type="text", doc=doc)


def flag(name: str, doc: str) -> Column:
    """A column of what is so or not."""
    return Column(name=name, type="bool", doc=doc)


def choice(name: str, values: tuple[str, ...], doc: str) -> Column:
    """A column of one of some words."""
    return Column(name=name, type="enum", values=values, doc=doc)


def count(name: str, doc: str, *, unit: str | None = None, bits: Literal[8, 32, 64] = 64) -> Column:
    """A column of whole numbers."""
    return Column(name=name, type="int64", unit=unit, doc=doc, bits=bits)


def size(name: str, doc: str) -> Column:
    """A column of bytes."""
    return count(name, doc, unit="bytes")


def number(name: str, doc: str, *, unit: str | None = None) -> Column:
    """A column of numbers."""
    return Column(name=name, type="float64", unit=unit, doc=doc)


def seconds(name: str, doc: str) -> Column:
    """A column of seconds."""
    return number(name, doc, unit="s")


def moment(name: str, doc: str) -> Column:
    """A column of points in time."""
    return Column(name=name, type="time", unit="ns", doc=doc)


def closing(*columns: Column) -> tuple[Column, ...]:
    """Columns whose values are known only as a row is completed."""
    return tuple([column._replace(closing=True) for column in columns])
