"""The tables and their columns, with what each means and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....messages.common import TablesAnswer, TableStatus
from ....messages.frozen import dataclass
from ....tables import Column, Table
from ....units import age
from ..table import columns, draw_table
from ..text import cut_words, first_sentence, plural, render_count, wrap_doc

_SQL_TYPES = {
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
    "enum": "VARCHAR",
    "time": "BIGINT",
}


def sql_type(column: Column) -> str:
    """What SQL calls the type of a column."""
    return _SQL_TYPES[column.type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a table stands at one moment.

    Attributes:
        lost: Rows that were overwritten, or could not be written, or not whole.
        oldest_s: The age of the oldest row.
    """

    status: TableStatus
    table: Table | None
    lost: int | None
    oldest_s: float | None

    @classmethod
    def of(cls, status: TableStatus, now_ns: int) -> Standing:
        """What a status means at the time `now_ns`, since the epoch."""
        counts = [n for n in (status.overwritten, status.dropped) if n is not None]
        oldest = status.oldest_ns
        return cls(
            status=status,
            table=status.table(),
            lost=sum(counts) if counts else None,
            oldest_s=None if oldest is None else max(0, now_ns - oldest) / 1e9,
        )

    @property
    def name(self) -> str:
        """What SQL calls the table."""
        return self.table.full_name if self.table else self.status.name


def plain_table(status: TableStatus, *, now_ns: int) -> dict[str, Any]:
    """A table, how it stands and its columns, for programs."""
    standing = Standing.of(status, now_ns)
    table = standing.table
    return {
        "name": standing.name,
        "kind": status.kind,
        "rows": status.rows,
        "oldest_s": standing.oldest_s,
        "written": status.written,
        "overwritten": status.overwritten,
        "dropped": status.dropped,
        "problem": status.problem,
        "doc": table.doc if table else "",
        "columns": [
            {"name": c.name, "type": sql_type(c), "unit": c.unit, "doc": c.doc}
            for c in (table.columns if table else ())
        ],
    }


def render_tables(
    answer: TablesAnswer,
    *,
    now_ns: int,
    width: int | None,
    color: bool,
    most: int = 0,
    is_whole: bool = True,
) -> str:
    """One line per table.

    Args:
        most: How many; 0 for all.
        is_whole: With all that is known of each, and its whole meaning below it.
    """
    standings = [Standing.of(status, now_ns) for status in answer.tables]
    shown = standings[:most] if most else standings
    lines = _whole(shown, width, color=color) if is_whole else _short(shown, width, color=color)
    if len(shown) < len(standings):
        lines.append(f"… {plural(len(standings) - len(shown), 'more table')}; -n 0 shows all")
    if not is_whole:
        lines.append("`tables NAME` shows the columns of one, -v all that is known of each")
    return "\n".join(lines)


def _short(standings: Sequence[Standing], width: int | None, *, color: bool) -> list[str]:
    """Name, rows and the first sentence of the meaning."""
    headings = columns("=table", ">rows", "meaning")
    names = max((len(standing.name) for standing in standings), default=0)
    room = None if width is None else max(20, width - names - 15)
    rows = []
    for standing in standings:
        meaning = first_sentence(standing.table.doc if standing.table else "")
        if standing.status.problem:
            meaning = f"cannot be read: {standing.status.problem}"
        count = render_count(standing.status.rows) or standing.status.kind
        rows.append([standing.name, count, meaning if room is None else cut_words(meaning, room)])
    drawing = draw_table(headings, rows, width=width, color=color)
    return [*drawing.heading, *drawing.rows]


def _whole(standings: Sequence[Standing], width: int | None, *, color: bool) -> list[str]:
    counts = ("rows", "oldest row", "written", "lost")
    headings = columns("table", "kind", *(f">{name}" for name in counts))
    rows = [
        [
            standing.name,
            standing.status.kind,
            render_count(standing.status.rows),
            "" if standing.oldest_s is None else age(standing.oldest_s),
            render_count(standing.status.written),
            render_count(standing.lost),
        ]
        for standing in standings
    ]
    drawing = draw_table(headings, rows, width=width, color=color)
    lines = list(drawing.heading)
    for line, standing in zip(drawing.rows, standings, strict=True):
        lines.append(line)
        lines += wrap_doc(standing.table.doc if standing.table else "", width)
        lines += _problem(standing.status, width)
    return lines


def render_columns(
    table: Table, status: TableStatus, *, now_ns: int, width: int | None, color: bool
) -> str:
    """What a table is, how it stands, and every column with its type, unit and meaning."""
    lines = [f"{table.full_name} ({table.kind})", *wrap_doc(table.doc, width)]
    lines += _counts(Standing.of(status, now_ns), width) + _problem(status, width) + [""]
    headings = columns("column", "type", "unit")
    rows = [[column.name, sql_type(column), column.unit or ""] for column in table.columns]
    drawing = draw_table(headings, rows, width=width, color=color)
    lines += drawing.heading
    for line, column in zip(drawing.rows, table.columns, strict=True):
        values = f" One of {', '.join(column.values)}." if column.values else ""
        lines += [line, *wrap_doc(f"{column.doc}{values}", width)]
    return "\n".join(lines)


def _counts(standing: Standing, width: int | None) -> list[str]:
    """The numbers of a recorded table in one sentence; a live one has none."""
    status = standing.status
    if status.rows is None:
        return []
    parts = [f"{render_count(status.rows)} rows held"]
    if standing.oldest_s is not None:
        parts.append(f"the oldest from {age(standing.oldest_s)} ago")
    for number, word in (
        (status.written, "written"),
        (status.overwritten, "overwritten by newer ones"),
        (status.dropped, "dropped"),
    ):
        if number is not None:
            parts.append(f"{render_count(number)} {word}")
    return wrap_doc(f"{', '.join(parts)}.", width)


def _problem(status: TableStatus, width: int | None) -> list[str]:
    return wrap_doc(f"Cannot be read: {status.problem}", width) if status.problem else []
