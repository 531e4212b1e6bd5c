"""Removes what is too old, or too much.

Rules of this file: rows go by their days, the oldest first, and what a process is goes once it was
last exported before the days that are kept; its state, which says that its rows are not to come
again, stays for a month longer. Only files are removed that no export will look at again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path, PurePath

from ...errors import DamagedHistory, HistoryBusy, UsageError
from ...messages.frozen import dataclass
from ...units import size
from ..files import locked, saying_what_failed
from ..layout import states_in, tables_of
from ..merged import said_by
from ..swap import replacing
from ..tables import LOOKS
from .settled import Settled

_DAY_S = 86_400
STATES_DAYS = 30
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What is to stay.

    Attributes:
        days: Rows of so many whole days before today; None for all.
        bytes: So much of everything, of rows the newest days; None for no limit.
        whole_days: Rows of modules of so many whole days before today as they are, and older ones
            rolled up; None for all as they are.

    Raises:
        UsageError: That is not possible.
    """

    days: int | None = None
    bytes: int | None = None
    whole_days: int | None = None

    def __post_init__(self) -> None:
        if self.days is not None and self.days < 1:
            raise UsageError(f"a history keeps one day at least, and {self.days} is less.")
        if self.whole_days is not None and self.whole_days < 1:
            raise UsageError(
                f"rows of one day at least stay as they are, and {self.whole_days} is less."
            )
        if self.bytes is not None and self.bytes < 1:
            raise UsageError("a history that may hold no byte keeps nothing: remove its folder.")


@dataclass(slots=True, kw_only=True)
class Removed:
    """What is gone: see `Compacted`."""

    files: int = 0
    bytes: int = 0
    upto: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a history."""

    path: PurePath
    table: str
    day: str
    size: int


def today() -> dt.date:
    """The day that it is, as days of a history are told."""
    return dt.datetime.now(dt.timezone.utc).date()


def first_kept(days: int) -> dt.date:
    """The first of so many whole days before today."""
    return today() - dt.timedelta(days=days)


def remove(root: Path, keep: Keep, settled: Settled, wait_s: float) -> Removed:
    """Remove what is not to stay.

    Raises:
        HistoryBusy: Queries were reading all the time.
        HistoryUnwritable: A file cannot be removed.
    """
    done = Removed()
    if keep.days is None and keep.bytes is None:
        return done
    old = to_go(list(_files(root)), keep, settled, done, _exported_ns)
    for at in range(0, len(old), _AT_ONCE):
        with replacing(root, wait_s=wait_s), saying_what_failed(root):
            _unlink(root, old[at : at + _AT_ONCE], done)
    if keep.days is not None:
        _forget(root, keep.days + STATES_DAYS)
    return done


def to_go(
    files: Sequence[KeptFile],
    keep: Keep,
    settled: Settled,
    done: Removed,
    exported_ns: Callable[[KeptFile], int],
) -> list[KeptFile]:
    """The files that have to go.

    Args:
        done: Gets the newest day of rows that go, and notes.
        exported_ns: When a process was last exported that such a file is of.
    """
    old: list[KeptFile] = []
    if keep.days is not None:
        first = first_kept(keep.days)
        old = [file for file in files if _is_old(file, first, exported_ns)]
        done.upto = max((file.day for file in old if file.table not in LOOKS), default=None)
    if keep.bytes is not None:
        gone = set(old)
        left = [file for file in files if file not in gone]
        old += _too_much(left, keep.bytes, str(today()), done)
    return [file for file in old if settled.may_go(file.path, file.table)]


def _files(root: Path) -> Iterator[KeptFile]:
    """All files of rows, and of what processes are."""
    for table, folder in tables_of(root):
        for path in folder.glob("day=*/*.parquet"):
            with contextlib.suppress(FileNotFoundError):
                day = path.parent.name.partition("=")[2]
                yield KeptFile(path, table, day, path.stat().st_size)


def _exported_ns(file: KeptFile) -> int:
    """When a process of a file was last exported, since the epoch."""
    return max(said_by(Path(file.path)).looks.values(), default=0)


def _is_old(file: KeptFile, first: dt.date, exported_ns: Callable[[KeptFile], int]) -> bool:
    """Whether a file is of the days before the first that is kept."""
    if file.table not in LOOKS:
        return file.day < str(first)
    if file.day >= str(first):
        return False
    begins = dt.datetime(first.year, first.month, first.day, tzinfo=dt.timezone.utc)
    try:
        return exported_ns(file) < begins.timestamp() * 1e9
    except DamagedHistory:
        return False


def _too_much(files: Sequence[KeptFile], most: int, today: str, done: Removed) -> list[KeptFile]:
    """The rows of the oldest days that have to go, so that the rest is no more than it may be."""
    left, gone = sum(file.size for file in files), []
    days = sorted({file.day for file in files if file.table not in LOOKS and file.day < today})
    while left > most and days:
        day = days.pop(0)
        of_day = [file for file in files if file.day == day and file.table not in LOOKS]
        left -= sum(file.size for file in of_day)
        gone += of_day
        done.upto = max(day, done.upto or day)
    if left > most:
        done.notes.append(
            f"{size(left)} stay, and {size(most)} were to: what is of today is kept, and who each"
            " process was"
        )
    return gone


def _unlink(root: Path, files: Sequence[KeptFile], done: Removed) -> None:
    """Remove files, and the folders that are empty then."""
    for file in files:
        Path(file.path).unlink(missing_ok=True)
        done.files += 1
        done.bytes += file.size
    for folder in {Path(file.path).parent for file in files}:
        place = folder
        with contextlib.suppress(OSError):  # it is not empty
            while place != root:
                place.rmdir()
                place = place.parent


def _forget(root: Path, days: int) -> None:
    """Remove the states of processes that were not exported for so many days."""
    before_s = time.time() - days * _DAY_S
    for path in states_in(root):
        with contextlib.suppress(FileNotFoundError, HistoryBusy):
            if path.stat().st_mtime < before_s:
                with locked(root, path):
                    path.unlink(missing_ok=True)
                    path.with_suffix(".lock").unlink(missing_ok=True)
