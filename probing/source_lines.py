"""The text of the lines that frames are at.

Rules of this file: reads regular files of a sensible size, each once, and forgets them with the
answer; what cannot be read has no text. Nothing is cached in the process.
"""

from __future__ import annotations

import os
import stat
import tokenize

_LARGEST_BYTES = 8 << 20


class SourceLines:
    """Source files by name, kept for one answer."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, lineno: int) -> str | None:
        """The text of a line without its indentation; None when it cannot be read."""
        if lineno <= 0:
            return None
        if file not in self._files:
            self._files[file] = _read(file)
        lines = self._files[file]
        return lines[lineno - 1].strip() if lineno <= len(lines) else None


def _read(file: str) -> list[str]:
    """The lines of a file; none when it is no source that can be read."""
    try:
        info = os.stat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _LARGEST_BYTES:
            return []
        with tokenize.open(file) as source:
            return source.readlines()
    except (OSError, SyntaxError, ValueError):  # UnicodeDecodeError is a ValueError
        return []
