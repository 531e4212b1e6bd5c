"""How names and texts are written in SQL.

Rules of this file: pure, and it imports nothing: whoever writes a statement may use it.
"""

from __future__ import annotations


def identifier(name: str) -> str:
    """A name in double quotes, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("'", "''") + "'"
