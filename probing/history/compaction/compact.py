"""Puts the small files of each table of a job and day together, and removes what is not to be kept.

Rules of this file: the order of things. A file is made in full before anything is replaced, and
replaced only if those that it was made of are still what they were.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

from ...errors import DamagedHistory, HistoryBusy, NoHistory
from ...messages.frozen import dataclass
from ..files import Shelf, locked
from ..layout import COMPACTOR, compactor_file, merged_name, tables_of, unfinished
from ..swap import finish, is_begun, replace, replacing
from .keep import Keep, Removed, first_kept, remove
from .merge import SizedFile, alike, merge, together
from .roll_up import TABLE as ROLLED_UP, RollUp, is_rolled_up
from .settled import Settled

SMALL_BYTES = 32 << 20
"""A file of this size stays as it is."""
_WAIT_S = 10.0
"""How long queries are waited for."""


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

    def count(self, files: Sequence[SizedFile], new: Path, rows: int) -> None:
        """Take in that some files are one now."""
        self.merged_files += len(files)
        self.merged_bytes += sum(file.size for file in files)
        self.new_files += 1
        self.new_bytes += new.stat().st_size
        self.rows += rows

    def count_rolled_up(self, files: Sequence[SizedFile], new: Path, rows: int) -> None:
        """Take in that the rows of some files were rolled up."""
        self.rolled_rows += rows
        self.rolled_bytes += sum(file.size for file in files)
        self.rolled_new_bytes += new.stat().st_size


def compact(root: Path, keep: Keep | None = None, limits: Limits | None = None) -> Compacted:
    """Put small files together, and remove what is not to be kept.

    Args:
        keep: What is; None for everything.

    Raises:
        NoHistory: There is nothing.
        HistoryBusy: Another process does it.
        HistoryUnwritable: The folder cannot be written to.
    """
    if not any(tables_of(root)):
        raise NoHistory(str(root), "no process was exported to it")
    busy = f"the history {root} is being compacted"
    with locked(root, compactor_file(root), busy=busy):
        return _Compaction(root, limits or Limits()).run(keep or Keep())


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was when it was looked at."""

    path: Path
    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def at(cls, path: Path) -> _File | None:
        """What is there; None where nothing is."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        return cls(path, found.st_size, found.st_mtime_ns, found.st_ino)


class _Compaction:
    """One compaction, by who holds its lock."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self._root, self._limits = root, limits
        self._settled = Settled.in_folder(root)
        self._done = Compacted()

    def run(self, keep: Keep) -> Compacted:
        """Do it."""
        with self._done.as_far_as_it_comes():
            if is_begun(self._root):
                with replacing(self._root, wait_s=self._limits.wait_s):
                    finish(self._root)
            Shelf(self._root, COMPACTOR).clear()
            self._done.note_removed(remove(self._root, keep, self._settled, self._limits.wait_s))
            if keep.whole_days is not None:
                self._roll_up(str(first_kept(keep.whole_days)))
            for table, folder in tables_of(self._root):
                for day in sorted(folder.glob("day=*")):
                    self._day(day, table)
        return self._done

    def _roll_up(self, first: str) -> None:
        """Roll up the rows of modules of the days before the first that stays as it is."""
        folders = (folder for table, folder in tables_of(self._root) if table == ROLLED_UP)
        days = (day for folder in folders for day in sorted(folder.glob("day=*")))
        for day in (day for day in days if day.name.partition("=")[2] < first):
            for some in together(list(self._raw(day))):
                left = some
                while left:
                    self._limits.go_on()
                    rest = self._try(day, left, RollUp())
                    left = rest if len(rest) < len(left) else []

    def _raw(self, day: Path) -> Iterator[_File]:
        """The files of a day whose rows are not rolled up yet, and may be."""
        for file in map(_File.at, sorted(day.glob("*.parquet"))):
            try:
                if (
                    file is not None
                    and self._settled.is_settled(file.path, ROLLED_UP)
                    and not is_rolled_up(file.path)
                ):
                    yield file
            except DamagedHistory as error:
                self._done.notes.append(f"{error.message} It stays as it is.")

    def _day(self, day: Path, table: str) -> None:
        """Put the small files of a day together."""
        files = [_File.at(path) for path in sorted(day.glob("*.parquet"))]
        small = [
            file
            for file in files
            if file is not None
            and file.size < SMALL_BYTES
            and self._settled.is_settled(file.path, table)
        ]
        for some in together(small):
            left = some
            while len(left) >= self._limits.least:
                self._limits.go_on()
                rest = self._try(day, left)
                left = rest if len(rest) < len(left) else []

    def _try(self, day: Path, files: list[_File], change: RollUp | None = None) -> list[_File]:
        """Put files together, but for one that is damaged; returns those that are left to do."""
        fits, others = alike(files, self._done.notes)
        if len(fits) < (1 if change else max(2, self._limits.least)):
            return others
        new = unfinished(self._root, COMPACTOR) / merged_name()
        try:
            rows = merge(self._root, [file.path for file in fits], new, change)
            with replacing(self._root, wait_s=self._limits.wait_s):
                if all(_File.at(file.path) == file for file in fits):
                    count = self._done.count_rolled_up if change else self._done.count
                    count(fits, new, rows)
                    replace(self._root, new, day / new.name, [file.path for file in fits])
        except DamagedHistory as error:
            self._done.notes.append(f"{error.message} It stays as it is.")
            return [file for file in files if str(file.path) not in error.message]
        finally:
            new.unlink(missing_ok=True)
        return others


class OutOfTimeError(Exception):
    """There is no time left to begin anything."""
