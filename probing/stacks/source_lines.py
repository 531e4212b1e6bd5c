"""The text of the lines that frames are at.

Rules of this file: reads regular files of a sensible size, each once, no more of them than the
stacks of a program have, and forgets them with the answer; what cannot be read has no text. Nothing
is cached in the process.
"""

from __future__ import annotations

import io
import tokenize

from ..linux.foreign_files import read_file

_LARGEST_BYTES = 8 << 20
_MOST_BYTES = 16 << 20
_MOST_FILES = 4096


class SourceLines:
    """Source files by name, kept for one answer."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}
        self._left = _MOST_BYTES

    def line(self, file: str, lineno: int) -> str | None:
        """The text of a line without its indentation; None when it cannot be read."""
        if lineno <= 0:
            return None
        if file not in self._files:
            self._files[file] = self._read(file)
        lines = self._files[file]
        return lines[lineno - 1].strip() if lineno <= len(lines) else None

    def _read(self, file: str) -> list[str]:
        """The lines of a file; none when it is no source that can be read."""
        if len(self._files) >= _MOST_FILES:
            return []
        try:
            data = read_file(file, min(_LARGEST_BYTES, self._left), follow_links=True)
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            lines = io.TextIOWrapper(io.BytesIO(data), encoding).readlines()
        except (OSError, SyntaxError, ValueError):  # UnicodeDecodeError is a ValueError
            return []
        self._left -= len(data)
        return lines
