"""A table for the eye: aligned columns, as many as fit.

Rules of this file: pure functions of their arguments; one row is one line. Numbers and times
are never cut, since a cut number is a wrong one; texts are, with an ellipsis; columns that
still do not fit are left out from the right and named below. rich is loaded where a cell is a
picture with colours of its own.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...messages.frozen import dataclass
from .text import cell_len, cut_middle, escape_controls, plural, set_cell_size, visible_width

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_GAP = 2
_BLANK = re.compile(r"\s")
_NARROWEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A column's name, and how its texts may be laid out.

    Attributes:
        is_number: Lined up on the right, and never cut.
        is_whole: Never cut, as a time is worth nothing without its end.
        is_drawn: Its texts are our own pictures, whose colours stay; never cut.
        least: A text column is not made narrower than this before others are left out.
    """

    name: str
    is_number: bool = False
    is_whole: bool = False
    is_drawn: bool = False
    least: int = _NARROWEST

    @property
    def may_be_cut(self) -> bool:
        """Whether a part of the text is better than nothing."""
        return not (self.is_number or self.is_whole or self.is_drawn)


def columns(*names: str | Heading) -> list[Heading]:
    """The columns of a table: ``columns("=file", "device", ">bytes")``.

    Args:
        names: What each is called, behind ``>`` where its values are numbers, and behind ``=``
            where they are not to be cut; or a heading.
    """
    return [
        name
        if isinstance(name, Heading)
        else Heading(
            name=name.lstrip(">="),
            is_number=name.startswith(">"),
            is_whole=name.startswith("="),
        )
        for name in names
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A table as lines: two of heading, then one per row.

    Attributes:
        hidden: Names of the columns that did not fit.
    """

    heading: tuple[str, ...]
    rows: tuple[str, ...]
    hidden: tuple[str, ...]


def draw_table(
    headings: Sequence[Heading],
    rows: Sequence[Sequence[str | None]],
    *,
    width: int | None,
    color: bool,
) -> Drawing:
    """Lay the cells out.

    Args:
        rows: One text per heading; None is NULL.
        width: Columns of the screen; None for as wide as it takes.
    """
    names = [escape_controls(heading.name) for heading in headings]
    if not any(heading.is_drawn for heading in headings):
        return _draw_texts(headings, names, rows, width=width, color=color)
    rows = [
        [_safe(heading, text) for heading, text in zip(headings, row, strict=True)] for row in rows
    ]
    from rich import box
    from rich.table import Table
    from rich.text import Text

    widths = _fit(headings, _natural_widths(names, rows), width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, name, cells in zip(headings, names, widths, strict=False):
        table.add_column(
            Text(name, style="bold"),
            width=cells,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if heading.is_number else "left",
        )
    for row in rows:
        fitted = zip(headings, row, widths, strict=False)
        table.add_row(*(_cell(each, _cut(each, text, room)) for each, text, room in fitted))
    lines = _draw(table, sum(widths) + _GAP * (len(widths) - 1), color=color)
    return Drawing(heading=lines[:2], rows=lines[2:], hidden=tuple(names[len(widths) :]))


def render_table(
    headings: Sequence[Heading],
    rows: Sequence[Sequence[str | None]],
    *,
    width: int | None,
    color: bool,
    more_rows: int = 0,
    all_by: str = "",
) -> str:
    """A table with lines below that say what is not shown.

    Args:
        more_rows: Rows of the answer that are not among `rows`.
        all_by: What to type to have them all.
    """
    drawing = draw_table(headings, rows, width=width, color=color)
    lines = [*drawing.heading, *drawing.rows]
    if not rows:
        lines.append("(no rows)")
    if more_rows:
        lines.append(f"… {plural(more_rows, 'more row')}; {all_by} shows all")
    if drawing.hidden:
        shown = plural(len(drawing.hidden), "more column")
        words = f"… {shown}, for which the screen is too narrow: {', '.join(drawing.hidden)}"
        lines += _wrapped(words, width)
    return "\n".join(lines)


def _draw_texts(
    headings: Sequence[Heading],
    names: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    *,
    width: int | None,
    color: bool,
) -> Drawing:
    """The same of a table of texts, column by column: an answer may have a million cells."""
    columns = [_Column.of(cells) for cells in zip(*rows, strict=True)] if rows else []
    columns = columns or [_Column.of(()) for _ in headings]
    pairs = zip(names, columns, strict=True)
    natural = [max(1, cell_len(name), column.width) for name, column in pairs]
    widths = _fit(headings, natural, width)
    bold, null = ("\x1b[1m{}\x1b[0m", "\x1b[2mNULL\x1b[0m") if color else ("{}", "NULL")
    head, laid = [], []
    for heading, name, column, room in zip(headings, names, columns, widths, strict=False):
        head.append(bold.format(_laid(heading, name, room)))
        laid.append(column.laid(heading, room, null))
    gap = " " * _GAP
    rule = "─" * (sum(widths) + _GAP * (len(widths) - 1))
    return Drawing(
        heading=(gap.join(head).rstrip(), rule),
        rows=tuple([gap.join(cells).rstrip() for cells in zip(*laid, strict=True)]),
        hidden=tuple(names[len(widths) :]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """The texts of a column, made safe.

    Attributes:
        is_plain: Whether each character of them takes one cell.
    """

    texts: Sequence[str | None]
    width: int
    is_plain: bool

    @classmethod
    def of(cls, texts: Sequence[str | None]) -> _Column:
        """Look at all of them at once, where nothing in them is out of the ordinary."""
        known = [text for text in texts if text is not None]
        whole = "".join(known)
        least = 4 if len(known) < len(texts) else 0
        if whole.isascii() and whole.isprintable():
            width = max(least, max(map(len, known), default=0))
            return cls(texts=texts, width=width, is_plain=True)
        safe = [text if text is None else escape_controls(text) for text in texts]
        widths = [0, *(cell_len(text) for text in safe if text is not None)]
        return cls(texts=safe, width=max(least, *widths), is_plain=False)

    def laid(self, heading: Heading, room: int, null: str) -> list[str]:
        """Each text in so many cells."""
        blank = null + " " * (room - 4) if not heading.is_number else " " * (room - 4) + null
        if self.is_plain and self.width <= room:
            pad = str.rjust if heading.is_number else str.ljust
            return [blank if text is None else pad(text, room) for text in self.texts]
        return [
            blank if text is None else _laid(heading, _cut(heading, text, room) or "", room)
            for text in self.texts
        ]


def _laid(heading: Heading, text: str, room: int) -> str:
    """A text in so many cells; what does not fit loses its end."""
    if text.isascii() and len(text) <= room:
        return text.rjust(room) if heading.is_number else text.ljust(room)
    cells = cell_len(text)
    if cells > room:
        return set_cell_size(text, room - 1) + "…"
    return " " * (room - cells) + text if heading.is_number else text + " " * (room - cells)


def _wrapped(words: str, width: int | None) -> list[str]:
    """A line below the table, broken between words."""
    if width is None:
        return [words]
    return textwrap.wrap(
        words, max(width, _NARROWEST), subsequent_indent="  ", break_on_hyphens=False
    )


def _natural_widths(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> list[int]:
    widths = [cell_len(name) for name in names]
    for row in rows:
        for index, text in enumerate(row):
            widths[index] = max(widths[index], 4 if text is None else visible_width(text))
    return [max(1, width) for width in widths]


def _fit(headings: Sequence[Heading], widths: list[int], width: int | None) -> list[int]:
    """The widths to draw: texts narrowed, then columns left out, until they fit."""
    if width is None:
        return widths
    widths = [
        min(size, width) if heading.may_be_cut else size
        for heading, size in zip(headings, widths, strict=True)
    ]
    for index in range(len(widths), 0, -1):
        excess = sum(widths[:index]) + _GAP * (index - 1) - width
        fitted = list(widths[:index])
        while excess > 0:
            texts = [i for i in range(index) if headings[i].may_be_cut]
            widest = max(texts, key=lambda i: fitted[i] - headings[i].least, default=None)
            if widest is None or fitted[widest] <= headings[widest].least:
                break
            fitted[widest] -= 1
            excess -= 1
        if excess <= 0:
            return fitted
    return [max(1, min(widths[0], width)) if headings[0].may_be_cut else widths[0]]


def _cut(heading: Heading, text: str | None, room: int) -> str | None:
    """A name that is too long without its middle; other texts lose their end as they are drawn."""
    if text is None or not heading.may_be_cut or _BLANK.search(text) or cell_len(text) != len(text):
        return text
    return cut_middle(text, room)


def _safe(heading: Heading, text: str | None) -> str | None:
    return text if text is None or heading.is_drawn else escape_controls(text)


def _cell(heading: Heading, text: str | None) -> Text:
    from rich.text import Text

    if text is None:
        return Text("NULL", style="dim")
    return Text.from_ansi(text) if heading.is_drawn else Text(text)


def _draw(table: Table, width: int, *, color: bool) -> tuple[str, ...]:
    """The table's lines without trailing blanks."""
    from rich.console import Console

    file = io.StringIO()
    console = Console(
        file=file,
        width=max(width, 1),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    console.print(table)
    return tuple(line.rstrip() for line in file.getvalue().splitlines())
