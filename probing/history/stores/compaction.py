"""A compaction of a history in a store.

A new object is put where nobody looks, then what it stands for is written down, and then the store
copies it to its place: whoever lists from then on passes over the old ones, see `replaced`. A query
that has listed them before finds them gone and begins again. Rules of this file: what a store has,
objects and marks; the order of things is that of `history.compaction`.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import NoHistory
from ..compaction.compact import Bench, Compaction, Day
from ..compaction.keep import STATES_DAYS, Keep, KeptFile, Removed, to_go
from ..compaction.merge import Near, Placed, footer_of
from ..compaction.outcome import Compacted, Limits
from ..layout import COMPACTOR, OWN, exporters_of, is_merged
from ..merged import said_by
from ..scanning.listing import tables_in
from .holding import Held, held
from .objects import Found, Store
from .settled import settled_in

_OWN = f"{OWN}/{COMPACTOR}"
_SWAP = f"{_OWN}/swap.json"


class _Swap(TypedDict):
    """Which objects are being replaced, by which, and where that is before it is seen."""

    new: str
    old: list[str]
    hidden: str


def compact_store(
    store: Store, keep: Keep | None = None, limits: Limits | None = None
) -> Compacted:
    """Put small objects together, and remove what is not to be kept; see `history.compaction`.

    Raises:
        NoHistory: There is nothing.
        HistoryBusy: Another process does it.
        StoreUnreachable: The store cannot be asked.
    """
    tables = tables_in(store)
    if not tables:
        raise NoHistory(store.url, "no process was exported to it")
    busy = f"the history {store.url} is being compacted"
    with held(store, f"{_OWN}/lock", wait_s=0.0, busy=busy) as alone:
        return Compaction(_Objects(store, alone, tables), limits or Limits()).run(keep or Keep())


def replaced(store: Store, names: frozenset[str]) -> frozenset[str]:
    """The objects that another one stands for, though they are still there.

    Args:
        names: Those that were listed before.
    """
    told = store.get(_SWAP)
    swap: _Swap = json.loads(told) if told else {"new": "", "old": [], "hidden": ""}
    return frozenset(swap["old"]) if swap["new"] in names else frozenset()


class _Objects:
    """See `compact.Site`; by who is alone with it."""

    def __init__(self, store: Store, alone: Held, tables: Sequence[tuple[str, str]]) -> None:
        self._store, self._alone, self._tables = store, alone, tables
        self._days: dict[Day, list[Found]] = {}
        self._found: dict[str, Found] = {}
        self._settled = settled_in(store, self._found)

    def begin(self) -> None:
        """See `compact.Site`."""
        told = self._store.get(_SWAP)
        if told is not None:
            self._finish(json.loads(told))
        self._clear()
        self._list()
        self._settled.read_ahead(map(PurePath, self._found), self._alone.at_once)

    def _clear(self) -> None:
        """Remove what a killed one has put where nobody looks, and then did not write down."""
        names = [one.name for one in self._store.objects(_OWN)]
        self._store.remove(name for name in names if is_merged(PurePath(name).name))

    def _list(self) -> None:
        """See all objects, by the folder of their day."""
        days: dict[Day, list[Found]] = defaultdict(list)
        folders = [folder for _, folder in self._tables]
        listed = self._alone.at_once(self._store.objects, folders)
        for (table, _), objects in zip(self._tables, listed, strict=True):
            for one in objects:
                if one.name.endswith(".parquet"):
                    days[Day(table, PurePath(one.name).parent)].append(one)
        self._days = dict(days)
        self._found.update((one.name, one) for found in days.values() for one in found)

    def days(self) -> list[Day]:
        """See `compact.Site`."""
        return list(self._days)

    def settled(self, day: Day) -> list[Placed]:
        """See `compact.Site`; as they were listed, but for what was done since."""
        return [
            Placed(name=one.name, size=one.size, version=(one.mtime_ns,))
            for one in self._days[day]
            if self._settled.is_settled(PurePath(one.name), day.table)
        ]

    def footers(self, files: Sequence[Placed], notes: list[str]) -> list[pq.FileMetaData | None]:
        """See `compact.Site`."""
        return self._alone.at_once(lambda file: self._footer(file, notes), files)

    def _footer(self, file: Placed, notes: list[str]) -> pq.FileMetaData | None:
        """What an object says of its rows; of one where that fails, all of it is looked at."""
        path = self._store.path(file.name)
        with contextlib.suppress(OSError, pa.ArrowException):
            return pq.read_metadata(path, filesystem=self._store.fs)
        data = self._store.get(file.name)
        if data is None:
            return None
        return footer_of(pa.BufferReader(data), self._shown(file), notes)

    def _shown(self, file: Placed) -> str:
        return f"{self._store.url}/{file.name}"

    @contextlib.contextmanager
    def near(self, files: Sequence[Placed]) -> Iterator[Bench]:
        """See `compact.Site`; they are copied to this machine."""
        self._alone.go_on()
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            copies = self._alone.at_once(lambda file: self._copy(file, place), files)
            yield Bench([one for one in copies if one is not None], place, place)

    def _copy(self, file: Placed, place: Path) -> Near | None:
        """A copy of an object, as old as it is there; None where it is gone."""
        path, data = place / PurePath(file.name).name, self._store.get(file.name)
        if data is None:
            return None
        path.write_bytes(data)
        os.utime(path, ns=(file.version[0], file.version[0]))
        return Near(placed=file, path=path, shown=self._shown(file))

    def replace(self, old: Sequence[Placed], new: Path, day: Day) -> bool:
        """See `compact.Site`."""
        final, hidden = (day.folder / new.name).as_posix(), f"{_OWN}/{new.name}"
        before = {self._found[file.name] for file in old}
        if not before.issubset(self._store.objects(day.folder.as_posix())):
            return False
        self._alone.stay()
        self._store.put(hidden, new.read_bytes())
        swap: _Swap = {"new": final, "old": [file.name for file in old], "hidden": hidden}
        self._alone.go_on()
        self._store.put(_SWAP, json.dumps(swap).encode())
        self._alone.go_on()
        self._store.copy(hidden, final)
        made = self._finish(swap)
        kept = [one for one in self._days[day] if one not in before]
        self._days[day] = kept if made is None else [*kept, made]
        self._found.update({} if made is None else {final: made})
        return True

    def _finish(self, swap: _Swap) -> Found | None:
        """Do the rest of what was begun, or nothing of it; first that which makes that sure.

        Returns:
            The new object; None where that was not there yet.
        """
        self._store.remove([swap["hidden"]])
        folder = swap["new"].rpartition("/")[0]
        there = {one.name: one for one in self._store.objects(folder)}
        made = there.get(swap["new"])
        if made is not None:
            self._store.remove(swap["old"])
        self._store.remove([_SWAP])
        return made

    def remove(self, keep: Keep) -> Removed:
        """See `compact.Site`."""
        removed = Removed()
        if keep.days is None and keep.bytes is None:
            return removed
        files = [
            KeptFile(PurePath(one.name), day.table, day.date, one.size)
            for day, found in self._days.items()
            for one in found
        ]
        old = to_go(files, keep, self._settled, removed, self._exported_ns)
        names = {file.path.as_posix() for file in old}
        self._alone.at_once(lambda name: self._store.remove([name]), sorted(names))
        for day, found in self._days.items():
            self._days[day] = [one for one in found if one.name not in names]
        removed.files, removed.bytes = len(old), sum(file.size for file in old)
        if keep.days is not None:
            self._forget(keep.days + STATES_DAYS)
        return removed

    def _exported_ns(self, file: KeptFile) -> int:
        """When a process of an object was last exported, since the epoch."""
        self._alone.stay()
        found = self._found[file.path.as_posix()]
        placed = Placed(name=found.name, size=found.size, version=(found.mtime_ns,))
        with tempfile.TemporaryDirectory() as place:
            near = self._copy(placed, Path(place))
            return 0 if near is None else max(said_by(near.path).looks.values(), default=0)

    def _forget(self, days: int) -> None:
        """Remove the books of processes that were not exported for so many days."""
        before_ns = (time.time() - days * 86_400) * 1e9
        for one in self._store.objects(f"{OWN}/state"):
            self._alone.stay()
            if one.mtime_ns < before_ns:
                marks = self._store.objects(exporters_of(PurePath(one.name).stem))
                self._store.remove([*(mark.name for mark in marks), one.name])
