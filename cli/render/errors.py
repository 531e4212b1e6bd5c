"""An error as a person reads it: one sentence, the place, the way out."""

from __future__ import annotations

import re

from ...errors import ProbingError
from .text import escape_controls, escape_lines, wrap_lines

_ANYBODY = re.compile(r"(?<!ssh HOST )probing (?:ENDPOINT|PID) ")
"""In a hint: whom this command has asked, unless it is to be typed elsewhere."""
_HEAD = "error:"
_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"


def to_paste(hint: str, *, asked: str | None, command: str | None) -> str:
    """A hint with what was typed in the place of what stands for it.

    Args:
        asked: The words for ``ENDPOINT``.
        command: The words for ``NAME ...``.
    """
    if asked is not None:
        who = f"probing {escape_controls(asked)} "
        hint = _ANYBODY.sub(lambda _: who, hint)
    if command is not None and asked not in command.split():
        name = command.partition(" ")[0]
        hint = hint.replace(f" {name} ...`", f" {escape_controls(command)}`")
    return hint


def render_error(
    error: ProbingError,
    *,
    endpoint: str | None = None,
    color: bool = False,
    width: int | None = None,
) -> str:
    """The lines that stderr gets.

    Args:
        endpoint: Where it happened, when several were asked.
        width: The columns of the screen that it is for; excerpts stay as they are.
    """
    is_named = not endpoint or error.message.startswith(f"{endpoint} ")
    where = "" if is_named else f"{escape_controls(endpoint or '')}: "
    excerpt = error.detail.get("excerpt")
    return render_failure(
        where + error.message,
        excerpt=excerpt if isinstance(excerpt, str) else "",
        help=error.help,
        color=color,
        width=width,
    )


def render_failure(
    sentence: str,
    *,
    excerpt: str = "",
    help: str = "",
    color: bool = False,
    width: int | None = None,
) -> str:
    """A sentence, a line of source with a caret, and what to do next."""
    told = wrap_lines(f"{_HEAD} {escape_lines(sentence)}", width)
    lines = [told.replace(_HEAD, f"{_RED}{_HEAD}{_PLAIN}", 1) if color else told]
    if excerpt:
        # A tab is one character in the caret's count of columns.
        shown = escape_lines(excerpt.replace("\t", " "))
        lines += [f"  {line}" for line in shown.split("\n")]
    if help:
        lines.append(wrap_lines(escape_lines(help), width))
    return "\n".join(lines)


def render_note(sentence: str, *, width: int | None = None) -> str:
    """What a person should know beside the answer."""
    return wrap_lines(f"note: {escape_controls(sentence)}", width)
