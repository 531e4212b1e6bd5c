"""Pieces of HTML: tables, texts, what can be folded away."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..render.text import escape_controls, escape_lines

if TYPE_CHECKING:
    from ..render.sections import Section

_PRE = "overflow-x:auto;line-height:1.35;margin:.3em 0"
_NUMBER = ' style="text-align:right"'
_TEXT = ' style="text-align:left"'


def escaped(text: str) -> str:
    """A text on one line as HTML."""
    return html.escape(escape_controls(text))


def pre(text: str) -> str:
    """Lines as they are."""
    return f'<pre style="{_PRE}">{html.escape(escape_lines(text))}</pre>'


def paragraphs(lines: Iterable[str]) -> str:
    """A paragraph for each line."""
    return "".join(f"<p>{escaped(line)}</p>" for line in lines)


def details(summary: str, body: str, *, is_open: bool = False) -> str:
    """What is folded away behind a line.

    Args:
        summary: The line, as HTML.
        body: What is behind it, as HTML.
    """
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{summary}</summary>{body}</details>"


def table(
    names: Sequence[str], numbers: Sequence[bool], rows: Iterable[Sequence[str | None]]
) -> str:
    """A table; a cell that is None says NULL.

    Args:
        numbers: Which columns are lined up on the right.
    """
    styles = [_NUMBER if is_number else _TEXT for is_number in numbers]
    head = _row("th", styles, names)
    body = "".join(_row("td", styles, cells) for cells in rows)
    whole = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    return f'<div style="max-height:32em;overflow:auto">{whole}</div>'


def section(one: Section) -> str:
    """A table of a report, and the sentence below it."""
    numbers = [heading.is_number for heading in one.headings]
    drawn = table([heading.name for heading in one.headings], numbers, one.rows)
    return drawn + paragraphs([one.note] if one.note else [])


def _row(tag: str, styles: Sequence[str], cells: Sequence[str | None]) -> str:
    inner = "".join(
        f"<{tag}{style}>{'<i>NULL</i>' if cell is None else escaped(cell)}</{tag}>"
        for style, cell in zip(styles, cells, strict=True)
    )
    return f"<tr>{inner}</tr>"
