"""Short reports: titles with tables below, for the eye or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from ...messages.frozen import dataclass
from .table import Heading, render_table
from .text import escape_controls, wrap_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table with a title.

    Attributes:
        note: A sentence below the table.
    """

    title: str
    headings: Sequence[Heading]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def render_sections(
    head: Sequence[str], sections: Sequence[Section], *, width: int | None, color: bool
) -> str:
    """The report for a terminal; the tables' first headings stand for the titles."""
    blocks = [wrap_lines("\n".join(head), width)]
    for section in sections:
        rows = [[escape_controls(cell) for cell in row] for row in section.rows]
        table = render_table(section.headings, rows, width=width, color=color)
        note = wrap_lines(section.note, width)
        blocks.append(f"{table}\n{note}" if note else table)
    return "\n\n".join(blocks)


def markdown_sections(title: str, head: Sequence[str], sections: Sequence[Section]) -> str:
    """The report as Markdown."""
    blocks = [f"# {title}", "\n".join(f"{line}  " for line in head).rstrip()]
    for section in sections:
        names = " | ".join(heading.name for heading in section.headings)
        rule = " | ".join("---:" if h.is_number else "---" for h in section.headings)
        rows = [f"| {' | '.join(map(_cell, row))} |" for row in section.rows]
        table = "\n".join([f"| {names} |", f"| {rule} |", *rows])
        blocks += [f"## {section.title}", table]
        blocks += [section.note] if section.note else []
    return "\n\n".join(blocks)


def _cell(text: str) -> str:
    """A text that does not end its cell."""
    return escape_controls(text).replace("|", "\\|")
