"""Puts the small objects of a history in a store together, and removes what is not to be kept.

A new object is put where nobody looks, then what it stands for is written down, and then the store
copies it to its place: whoever lists from then on passes over the old ones, see `replaced`. A query
that has listed them before finds them gone and begins again. Rules of this file: the order of
things; what is merged is said by `history.compaction`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from ...errors import DamagedHistory, NoHistory
from ..compaction.compact import SMALL_BYTES, Compacted, Limits
from ..compaction.keep import STATES_DAYS, Keep, KeptFile, Removed, to_go
from ..compaction.merge import alike, merge, together
from ..layout import COMPACTOR, OWN, exporters_of, merged_name
from ..merged import said_by
from ..scanning.listing import tables_in
from .holding import Held, held
from .objects import Found, Store, at_once
from .settled import settled_in

_OWN = f"{OWN}/{COMPACTOR}"
_SWAP = f"{_OWN}/swap.json"


class _Fetched(NamedTuple):
    """An object, and where it lies on this machine."""

    path: Path
    size: int
    found: Found


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
        return _Compaction(store, alone, limits or Limits()).run(tables, keep or Keep())


def replaced(store: Store, names: frozenset[str]) -> frozenset[str]:
    """The objects that another one stands for, though they are still there.

    Args:
        names: Those that were listed before.
    """
    told = store.get(_SWAP)
    swap = json.loads(told) if told else {"new": "", "old": []}
    return frozenset(swap["old"]) if swap["new"] in names else frozenset()


class _Compaction:
    """One compaction, by who is alone with it."""

    def __init__(self, store: Store, alone: Held, limits: Limits) -> None:
        self._store, self._alone, self._limits = store, alone, limits
        self._found: dict[str, Found] = {}
        self._settled = settled_in(store, self._found)
        self._done = Compacted()

    def run(self, tables: Sequence[tuple[str, str]], keep: Keep) -> Compacted:
        """Do it."""
        self._finish()
        with self._done.as_far_as_it_comes():
            days = self._listed(tables)
            self._remove(days, keep)
            for (table, day), files in sorted(days.items()):
                self._day(day, table, [one for one in files if one.name in self._found])
        return self._done

    def _listed(self, tables: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Found]]:
        """All objects by their table and the folder of their day; the books of their processes."""
        days: dict[tuple[str, str], list[Found]] = defaultdict(list)
        listed = self._alone.at_once(self._store.objects, [folder for _, folder in tables])
        for (table, _), objects in zip(tables, listed, strict=True):
            for one in objects:
                if one.name.endswith(".parquet"):
                    self._found[one.name] = one
                    days[table, one.name.rpartition("/")[0]].append(one)
        self._settled.read_ahead(map(PurePath, self._found), self._alone.at_once)
        return days

    def _day(self, folder: str, table: str, found: Sequence[Found]) -> None:
        """Put the small objects of a day together."""
        small = [
            _Fetched(Path(one.name), one.size, one)
            for one in found
            if one.size < SMALL_BYTES and self._settled.is_settled(PurePath(one.name), table)
        ]
        for some in together(small):
            if len(some) >= self._limits.least:
                self._limits.go_on()
                self._alone.go_on()
                with tempfile.TemporaryDirectory() as place:
                    self._merge(folder, self._fetch([one.found for one in some], Path(place)))

    def _fetch(self, found: Sequence[Found], place: Path) -> list[_Fetched]:
        """Objects as files of this machine, as old as they are there."""

        def fetch(one: Found) -> _Fetched | None:
            path, data = place / PurePath(one.name).name, self._store.get(one.name)
            if data is None:
                return None
            path.write_bytes(data)
            os.utime(path, ns=(one.mtime_ns, one.mtime_ns))
            return _Fetched(path, len(data), one)

        return [one for one in at_once(fetch, found) if one is not None]

    def _merge(self, folder: str, files: Sequence[_Fetched]) -> None:
        """Put files together, but for those that are damaged or have other columns."""
        left, notes = list(files), list[str]()
        while len(left) >= max(2, self._limits.least):
            fits, others = alike(left, notes)
            if len(fits) < max(2, self._limits.least):
                break
            new = fits[0].path.parent / merged_name()
            try:
                rows = merge(new.parent, [one.path for one in fits], new)
            except DamagedHistory as error:
                notes.append(f"{error.message} It stays as it is.")
                left = [one for one in left if str(one.path) not in error.message]
                continue
            if self._replace([one.found for one in fits], new, f"{folder}/{new.name}"):
                self._done.count(fits, new, rows)
            left = others
        whose = f"{self._store.url}/{folder}"
        place = str(files[0].path.parent) if files else ""
        self._done.notes += [note.replace(place, whose) for note in notes]

    def _replace(self, old: Sequence[Found], new: Path, final: str) -> bool:
        """Put one object in the place of others, if they are still what they were."""
        there = set(self._store.objects(final.rpartition("/")[0]))
        if not there.issuperset(old):
            return False
        hidden = f"{_OWN}/{new.name}"
        self._store.put(hidden, new.read_bytes())
        told = {"new": final, "old": [one.name for one in old], "hidden": hidden}
        self._store.put(_SWAP, json.dumps(told).encode())
        self._alone.go_on()
        self._store.copy(hidden, final)
        self._finish()
        return True

    def _finish(self) -> None:
        """Do the rest of what was begun, or nothing of it; first that which makes that sure."""
        told = self._store.get(_SWAP)
        if told is None:
            return
        swap = json.loads(told)
        self._store.remove([swap["hidden"]])
        folder = swap["new"].rpartition("/")[0]
        if swap["new"] in {one.name for one in self._store.objects(folder)}:
            self._store.remove(swap["old"])
        self._store.remove([_SWAP])

    def _remove(self, days: dict[tuple[str, str], list[Found]], keep: Keep) -> None:
        """Remove what is not to stay."""
        if keep.days is None and keep.bytes is None:
            return
        removed = Removed()
        files = [
            KeptFile(PurePath(one.name), table, day.rpartition("=")[2], one.size)
            for (table, day), found in days.items()
            for one in found
        ]
        old = to_go(files, keep, self._settled, removed, self._exported_ns)
        names = [file.path.as_posix() for file in old]
        self._alone.at_once(lambda name: self._store.remove([name]), names)
        for name in names:
            del self._found[name]
        removed.files, removed.bytes = len(old), sum(file.size for file in old)
        self._done.note_removed(removed)
        if keep.days is not None:
            self._forget(keep.days + STATES_DAYS)

    def _exported_ns(self, file: KeptFile) -> int:
        """When a process of an object was last exported, since the epoch."""
        self._alone.stay()
        with tempfile.TemporaryDirectory() as place:
            found = self._fetch([self._found[file.path.as_posix()]], Path(place))
            return max((at for one in found for at in said_by(one.path).looks.values()), default=0)

    def _forget(self, days: int) -> None:
        """Remove the books of processes that were not exported for so many days."""
        before_ns = (time.time() - days * 86_400) * 1e9
        for one in self._store.objects(f"{OWN}/state"):
            self._alone.stay()
            if one.mtime_ns < before_ns:
                marks = self._store.objects(exporters_of(PurePath(one.name).stem))
                self._store.remove([*(mark.name for mark in marks), one.name])
