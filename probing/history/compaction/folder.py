"""A compaction of a history in a folder.

Rules of this file: what a folder has, names and locks; the order of things is `compact`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from ...errors import NoHistory
from ..files import Shelf, locked
from ..layout import COMPACTOR, compactor_file, tables_of, unfinished
from ..swap import finish, is_begun, replace, replacing
from .compact import Bench, Compaction, Day
from .keep import Keep, Removed, remove
from .merge import Near, Placed, footer_of
from .outcome import Compacted, Limits
from .settled import Settled


def compact_folder(root: Path, keep: Keep | None = None, limits: Limits | None = None) -> Compacted:
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
    limits = limits or Limits()
    with locked(root, compactor_file(root), busy=busy):
        return Compaction(_Folder(root, limits.wait_s), limits).run(keep or Keep())


class _Folder:
    """See `compact.Site`; by who holds the lock.

    Args:
        wait_s: How long queries are waited for.
    """

    def __init__(self, root: Path, wait_s: float) -> None:
        self._root, self._wait_s = root, wait_s
        self._settled = Settled.in_folder(root)

    def begin(self) -> None:
        """See `compact.Site`."""
        if is_begun(self._root):
            with replacing(self._root, wait_s=self._wait_s):
                finish(self._root)
        Shelf(self._root, COMPACTOR).clear()

    def remove(self, keep: Keep) -> Removed:
        """See `compact.Site`."""
        return remove(self._root, keep, self._settled, self._wait_s)

    def days(self) -> list[Day]:
        """See `compact.Site`."""
        tables = tables_of(self._root)
        return [Day(table, day) for table, folder in tables for day in folder.glob("day=*")]

    def settled(self, day: Day) -> list[Placed]:
        """See `compact.Site`."""
        files = map(_placed, sorted(Path(day.folder).glob("*.parquet")))
        return [
            file
            for file in files
            if file is not None and self._settled.is_settled(Path(file.name), day.table)
        ]

    def footers(self, files: Sequence[Placed], notes: list[str]) -> list[pq.FileMetaData | None]:
        """See `compact.Site`."""
        return [footer_of(Path(file.name), file.name, notes) for file in files]

    @contextlib.contextmanager
    def near(self, files: Sequence[Placed]) -> Iterator[Bench]:
        """See `compact.Site`; they are."""
        here = [Near(placed=file, path=Path(file.name), shown=file.name) for file in files]
        yield Bench(here, unfinished(self._root, COMPACTOR), self._root)

    def replace(self, old: Sequence[Placed], new: Path, day: Day) -> bool:
        """See `compact.Site`."""
        paths = [Path(file.name) for file in old]
        with replacing(self._root, wait_s=self._wait_s):
            if [_placed(path) for path in paths] != list(old):
                return False
            replace(self._root, new, Path(day.folder) / new.name, paths)
        return True


def _placed(path: Path) -> Placed | None:
    """What is there; None where nothing is."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    version = (found.st_mtime_ns, found.st_ino)
    return Placed(name=str(path), size=found.st_size, version=version)
