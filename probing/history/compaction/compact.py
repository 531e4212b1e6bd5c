"""Puts the small files of each table of a job and day together, and rolls old rows up.

Rules of this file: the order of things, wherever a history lies; a `Site` does them in a folder or
in a store. A file is made in full before anything is replaced, and replaced only if those that it
was made of are still what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

import pyarrow.parquet as pq

from ...errors import DamagedHistory
from ..layout import is_merged, merged_name
from .keep import Keep, Removed, first_kept
from .merge import Change, Near, Placed, alike, merge, together
from .outcome import Compacted, Limits
from .roll_up import TABLE as ROLLED_UP, RollUp, is_rolled_up

SMALL_BYTES = 32 << 20
"""A file of this size stays as it is."""


class Day(NamedTuple):
    """The folder of a day of a table of a job."""

    table: str
    folder: PurePath

    @property
    def date(self) -> str:
        """Which day that is, as 2026-11-24."""
        return self.folder.name.partition("=")[2]


class Bench(NamedTuple):
    """Where files of a history can be read, and one be made of them.

    Attributes:
        place: The folder for that one.
        disk: What is named where it takes no more.
    """

    files: list[Near]
    place: Path
    disk: Path


class Site(Protocol):
    """Where a history lies, for who is alone with it."""

    def begin(self) -> None:
        """Do the rest of what a killed one has begun, or nothing of it, and see what is there."""

    def remove(self, keep: Keep) -> Removed:
        """Remove what is too old, or too much."""

    def days(self) -> Sequence[Day]:
        """All days of all tables."""

    def settled(self, day: Day) -> Sequence[Placed]:
        """The files of a day, as they are now, that no export will look at again."""

    def footers(self, files: Sequence[Placed], notes: list[str]) -> list[pq.FileMetaData | None]:
        """What files say of their rows; None of one that is gone, or damaged, with a note then."""

    def near(self, files: Sequence[Placed]) -> AbstractContextManager[Bench]:
        """Have files at hand; without those that are gone."""

    def replace(self, old: Sequence[Placed], new: Path, day: Day) -> bool:
        """Put one file in the place of others, if they are still what they were."""


class Compaction:
    """One compaction, by who is alone with it."""

    def __init__(self, site: Site, limits: Limits) -> None:
        self._site, self._limits = site, limits
        self._done = Compacted()

    def run(self, keep: Keep) -> Compacted:
        """Do it."""
        with self._done.as_far_as_it_comes():
            self._site.begin()
            self._done.note_removed(self._site.remove(keep))
            days = sorted(self._site.days())
            if keep.whole_days is not None:
                first = str(first_kept(keep.whole_days))
                for day in days:
                    if day.table == ROLLED_UP and day.date < first:
                        self._put_together(day, self._raw(day), RollUp())
            for day in days:
                small = [file for file in self._site.settled(day) if file.size < SMALL_BYTES]
                self._put_together(day, small)
        self._done.notes[:] = dict.fromkeys(self._done.notes)
        return self._done

    def _raw(self, day: Day) -> list[Placed]:
        """The files of a day whose rows are not rolled up yet, and may be."""
        settled = self._site.settled(day)
        merged = [file for file in settled if is_merged(PurePath(file.name).name)]
        footers = self._site.footers(merged, self._done.notes)
        gone = {
            file
            for file, footer in zip(merged, footers, strict=True)
            if footer is None or is_rolled_up(footer)
        }
        return [file for file in settled if file not in gone]

    def _put_together(
        self, day: Day, files: Sequence[Placed], change: Change | None = None
    ) -> None:
        """Make few files of some of a day."""
        least = max(2, self._limits.least) if change is None else 1
        for some in together(files):
            if len(some) >= least:
                self._limits.go_on()
                with self._site.near(some) as bench:
                    left = bench.files
                    while len(left) >= least:
                        self._limits.go_on()
                        rest = self._one(day, bench._replace(files=left), least, change)
                        left = rest if len(rest) < len(left) else []

    def _one(self, day: Day, bench: Bench, least: int, change: Change | None) -> list[Near]:
        """Make one file of those that can be; returns the others, but for what is damaged."""
        fits, others = alike(bench.files, self._done.notes)
        if len(fits) < least:
            return others
        new = bench.place / merged_name()
        try:
            rows = merge(bench.disk, fits, new, change)
            before, after = sum(file.size for file in fits), new.stat().st_size
            if self._site.replace([file.placed for file in fits], new, day):
                if change is None:
                    self._done.count(len(fits), before, after, rows)
                else:
                    self._done.count_rolled_up(before, after, rows)
        except DamagedHistory as error:
            self._done.notes.append(f"{error.message} It stays as it is.")
            return [file for file in bench.files if file.shown not in error.message]
        finally:
            new.unlink(missing_ok=True)
        return others
