"""The text of the lines that frames are at.

Rules of this file: reads regular files of a sensible size, each once, no more of them than the
stacks of a program have, and forgets them with the answer; what cannot be read has no text. Nothing
is cached in the process.
"""

from __future__ import annotations

import io
import tokenize
from typing import NamedTuple

from ..linux.foreign_files import read_file

_LARGEST_BYTES = 8 << 20
_MOST_BYTES = 16 << 20
_MOST_FILES = 4096
_LONGEST = 400


class Span(NamedTuple):
    """Where in a file an expression stands: lines from 1, columns from 0 in bytes of UTF-8."""

    lineno: int
    end_lineno: int
    column: int
    end_column: int


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

    def part(self, file: str, span: Span) -> str | None:
        """The text of an expression, on one line; None when it cannot be read, or is very long."""
        if self.line(file, span.lineno) is None or span.end_lineno > len(self._files[file]):
            return None
        lines = [line.encode() for line in self._files[file][span.lineno - 1 : span.end_lineno]]
        lines[-1] = lines[-1][: span.end_column]
        lines[0] = lines[0][span.column :]
        text = " ".join(b" ".join(lines).decode(errors="replace").split())
        return text if 0 < len(text) <= _LONGEST else None

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
