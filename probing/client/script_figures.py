"""What scripts tell of themselves by `probing.metric`: the last value of each name that is wanted.

Rules of this file: all comes from the records. A look reads the rows that are new since the last,
so that what is told once in a thousand steps stays known; a process has so many names and no more.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path

from ..errors import RingError
from ..linux.foreign_files import read_file
from ..ring.names import MAX_FILE_BYTES, decode_names, first_of
from ..ring.peek import RingPeek
from ..rundir.folders import ProcessFolder

MOST_NAMES = 64
"""How many of a process there are; those that come later are left out."""
_LATE = 256
"""So many rows are read again: what is on its way from a device comes later."""


class ScriptFigures:
    """The last values of the figures that are wanted, by process.

    Args:
        wanted: Their names, or patterns with `*` and `?`, separated by commas.
    """

    def __init__(self, wanted: str) -> None:
        self._patterns = [word for part in wanted.split(",") if (word := part.strip())]
        self._known: dict[str, _Known] = {}

    def now(self, key: str, folder: ProcessFolder) -> Mapping[str, float]:
        """Those of a process, by name."""
        if not self._patterns:
            return {}
        known = self._known.setdefault(key, _Known(self._patterns))
        known.look(folder)
        return dict(known.values)

    def keep(self, keys: set[str]) -> None:
        """Forget all others."""
        self._known = {key: one for key, one in self._known.items() if key in keys}


class _Known:
    """What is known of one process."""

    def __init__(self, patterns: list[str]) -> None:
        self.values: dict[str, float] = {}
        self._patterns = patterns
        self._names: dict[int, str | None] = {}
        self._newest = 0

    def look(self, folder: ProcessFolder) -> None:
        """Read what is new; where it cannot be read, what was known stays."""
        try:
            with RingPeek(folder.ring("metrics")) as ring:
                newest = ring.newest_seq()
                if newest < self._newest:  # the agent was taken out, and came again
                    self._newest, self._names = 0, {}
                rows = ring.newest(newest - max(0, self._newest - _LATE), ("name", "value"))
                found = [(row.values["name"], row.values["value"]) for row in rows]
                self._newest = newest
        except (KeyError, OSError, RingError):
            return
        if any(number not in self._names for number, _ in found):
            self._read_names(folder.names, {number for number, _ in found})
        for number, value in reversed(found):
            name = self._names.get(number)
            is_room = name in self.values or len(self.values) < MOST_NAMES
            if name is not None and value is not None and is_room:
                self.values[name] = value

    def _read_names(self, path: Path, numbers: set[int]) -> None:
        """Look up what the rows refer to; None for what is not wanted."""
        try:
            texts = decode_names(read_file(path, MAX_FILE_BYTES))
        except OSError:
            return
        for number in numbers:
            text = first_of(texts[number]) if 0 < number < len(texts) else None
            is_wanted = text and any(fnmatch.fnmatchcase(text, one) for one in self._patterns)
            self._names[number] = text if is_wanted else None
