"""What a compaction may take, and what becomes of a history by it.

Rules of this file: numbers and sentences; nothing is done here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import field

from ...errors import HistoryBusy
from ...messages.frozen import dataclass
from .keep import Removed

_WAIT_S = 10.0
"""How long queries are waited for."""


class OutOfTimeError(Exception):
    """There is no time left to begin anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far to go.

    Attributes:
        least: So many small files of a table, job and day are put together, and no fewer.
        until_s: Nothing is begun any more after that, by the monotonic clock; None for no such end.
        wait_s: How long queries are waited for, each time that files are replaced.
        is_asked: Whether somebody wants it to end: nothing is begun any more then, either.
    """

    least: int = 2
    until_s: float | None = None
    wait_s: float = _WAIT_S
    is_asked: Callable[[], bool] = lambda: False

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or somebody waits."""
        is_late = self.until_s is not None and time.monotonic() >= self.until_s
        return is_late or self.is_asked()

    def go_on(self) -> None:
        """Begin another thing.

        Raises:
            OutOfTimeError: The time is up.
        """
        if self.is_over:
            raise OutOfTimeError


@dataclass(slots=True, kw_only=True)
class Compacted:
    """What became of a history.

    Attributes:
        merged_files: Small files that are no more.
        new_files: Those that have their rows.
        rows: How many rows these are.
        merged_bytes: What the small ones took.
        new_bytes: What the new ones take.
        rolled_rows: Rows of modules that were rolled up.
        rolled_bytes: What they took.
        rolled_new_bytes: What is left of that.
        removed_files: What was too old, or too much.
        removed_upto: The newest day whose rows were removed; None where none were.
        is_complete: Whether all was done that was to be.
        notes: What was not done, and why.
    """

    merged_files: int = 0
    new_files: int = 0
    rows: int = 0
    merged_bytes: int = 0
    new_bytes: int = 0
    rolled_rows: int = 0
    rolled_bytes: int = 0
    rolled_new_bytes: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    removed_upto: str | None = None
    is_complete: bool = True
    notes: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def as_far_as_it_comes(self) -> Iterator[None]:
        """Note that the time was up, or that others were in the way, and leave the rest."""
        try:
            yield
        except OutOfTimeError:
            self.is_complete = False
            self.notes.append("the time was up before all was put together")
        except HistoryBusy as error:
            self.is_complete = False
            self.notes.append(f"{error.message} The rest stays as it is until next time.")

    def note_removed(self, removed: Removed) -> None:
        """Take in what was removed."""
        self.removed_files = removed.files
        self.removed_bytes = removed.bytes
        self.removed_upto = removed.upto
        self.notes += removed.notes

    def count(self, files: int, before: int, after: int, rows: int) -> None:
        """Take in that so many files of so many bytes are one now."""
        self.merged_files += files
        self.merged_bytes += before
        self.new_files += 1
        self.new_bytes += after
        self.rows += rows

    def count_rolled_up(self, before: int, after: int, rows: int) -> None:
        """Take in that so many rows were rolled up, in files of so many bytes."""
        self.rolled_rows += rows
        self.rolled_bytes += before
        self.rolled_new_bytes += after
