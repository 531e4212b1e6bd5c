"""An error as a person reads it: one sentence, the place, the way out."""

from __future__ import annotations

from ...errors import ProbingError
from .text import escape_controls, escape_lines

_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"


def render_error(error: ProbingError, *, endpoint: str | None = None, color: bool = False) -> str:
    """The lines that stderr gets.

    Args:
        endpoint: Where it happened, when several were asked.
    """
    where = f"{escape_controls(endpoint)}: " if endpoint else ""
    excerpt = error.detail.get("excerpt")
    return render_failure(
        where + error.message,
        excerpt=excerpt if isinstance(excerpt, str) else "",
        help=error.help,
        color=color,
    )


def render_failure(sentence: str, *, excerpt: str = "", help: str = "", color: bool = False) -> str:
    """A sentence, a line of source with a caret, and what to do next."""
    head = f"{_RED}error:{_PLAIN}" if color else "error:"
    lines = [f"{head} {escape_lines(sentence)}"]
    if excerpt:
        # A tab is one character in the caret's count of columns.
        shown = escape_lines(excerpt.replace("\t", " "))
        lines += [f"  {line}" for line in shown.split("\n")]
    if help:
        lines.append(escape_lines(help))
    return "\n".join(lines)
