"""Which files of a history no export will look at again.

Rules of this file: what a process's state says is read once. A state only ever grows, so a file
that it counts stays counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

from ...errors import DamagedHistory
from ..files import read_json
from ..layout import is_merged, look_of, part_of, state_file

SILENT_S = 30 * 86_400
"""What a process is, is told again at each export of it; one that was not exported for so long,
such as of a machine that was lost, is as it will stay."""


class Settled:
    """Knows the states of processes.

    Args:
        read: Gives the state of a process.
        is_silent: Whether a file was not written for long.
    """

    def __init__(self, read: Callable[[str], Any], is_silent: Callable[[PurePath], bool]) -> None:
        self._read, self._is_silent = read, is_silent
        self._states: dict[str, dict[str, Any] | None] = {}

    @classmethod
    def in_folder(cls, root: Path) -> Settled:
        """Those of a history in a folder."""
        return cls(lambda process: read_json(state_file(root, process)), _is_silent)

    def read_ahead(
        self,
        paths: Iterable[PurePath],
        at_once: Callable[[Callable[[str], Any], Sequence[str]], list[Any]],
    ) -> None:
        """Read the states that tell of some files, those that are not read yet.

        Args:
            at_once: What a function says of each of many values.
        """
        found = {(part_of(path.name) or (look_of(path.name),))[0] for path in paths}
        left = sorted({process for process in found if process} - self._states.keys())
        self._states.update(zip(left, at_once(self._now, left), strict=True))

    def is_settled(self, path: PurePath, table: str) -> bool:
        """Whether a file may be put into another one, or removed."""
        if is_merged(path.name):
            return True
        part, look = part_of(path.name), look_of(path.name)
        if part is not None:
            return self._is_counted(*part, table, is_lost=False)
        state = self._state(look or "")
        return bool(state and state.get("whole")) or self._is_silent(path)

    def may_go(self, path: PurePath, table: str) -> bool:
        """Whether a file that is old may be removed, as one whose state is lost may."""
        part = part_of(path.name)
        return part is None or self._is_counted(*part, table, is_lost=True)

    def _is_counted(self, process: str, number: int, table: str, *, is_lost: bool) -> bool:
        """Whether a state counts a file of rows; where it is lost as is said here."""
        state = self._state(process)
        if state is None:
            return is_lost
        books = state.get("tables", {}).get(table)
        return books is not None and number <= int(books["number"])

    def _state(self, process: str) -> dict[str, Any] | None:
        """What is exported of a process; None where that is lost."""
        if process not in self._states:
            self._states[process] = self._now(process)
        return self._states[process]

    def _now(self, process: str) -> dict[str, Any] | None:
        try:
            state: dict[str, Any] | None = self._read(process)
        except DamagedHistory:
            return None
        return state


def _is_silent(path: PurePath) -> bool:
    """Whether a file was not written for long."""
    try:
        return Path(path).stat().st_mtime < time.time() - SILENT_S
    except FileNotFoundError:
        return False
