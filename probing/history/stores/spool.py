"""The way of rows into a store: by a folder on a disk of this machine, the spool.

An export goes into the spool as into any history, with its books there. What the books count is
copied to the store, and only then removed from the spool; last of all the books are copied, too.
So whoever is killed at any moment has copied a file again at worst, the same under the same name.
Who compacts leaves alone what the books in the store do not count. A store that has other books
than were copied to it has lost something, which is exported again: see `lost`. Rules of this file:
while the store is away rows wait in the spool until that is full, then in their rings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ...errors import CardDamaged, DamagedHistory, HistoryBusy, HistoryUnwritable, StoreUnreachable
from ...messages.card import Card
from ...rundir.folders import ProcessFolder
from ...units import size
from ..export import Exported, export_alone
from ..files import (
    Shelf,
    checked_state,
    locked,
    read_json,
    read_state,
    saying_what_failed,
)
from ..layout import (
    OWN,
    exporters_of,
    job_folder,
    look_of,
    part_of,
    quoted,
    shipped_file,
    state_file,
    states_in,
    unquoted,
)
from ..naming import called, exporting, process_name
from ..tables import EXPORTS, PROCESSES
from .holding import claim
from .lost import rows_lost, tables_again
from .naming import run_in
from .objects import Store

_REST_S = 30.0
"""So long a store that did not answer is left alone."""
_KEPT_S = 30 * 86_400
"""So long the books are kept here of a process that is not exported any more."""


class Spool:
    """Where rows wait for a store.

    Args:
        root: A folder on a disk of this machine, which is this store's alone.
        who: What tells this spool from all others.
        most_bytes: How much may wait.
    """

    def __init__(self, store: Store, root: Path, *, who: str, most_bytes: int) -> None:
        self.store, self.root = store, root
        self._who, self._most_bytes = who, most_bytes
        self._silence: StoreUnreachable | None = None
        self._rests_until_s = 0.0

    def export(self, folder: ProcessFolder, *, project: str | None = None) -> Exported:
        """Export a process, see `history.export`, and copy what waits of it to the store.

        Raises:
            HistoryBusy: Another one exports it.
            StoreUnreachable: It is not in the store yet; what could be exported waits here.
            HistoryUnwritable: The spool is full, or cannot be written to.
            CardDamaged, DamagedHistory: See `history.export`.
        """
        card = folder.read_card()
        if card is None:
            raise CardDamaged(str(folder.path))
        process = process_name(card)
        with saying_what_failed(self.root):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with exporting(self.root, card):
            self._begin(card, process)
            lost = self._find_lost(folder, card, process)
            with contextlib.suppress(StoreUnreachable):
                self._copy(process)
            self._check_room()
            exported = export_alone(
                folder,
                card,
                self.root,
                project=project,
                name_run=lambda _, of, card, process: run_in(self.store, of, card, process),
                is_with_others=lambda *_: True,  # in the store
            )
            try:
                self._copy(process)
            except StoreUnreachable as error:
                error.help = f"{self._waits()}{StoreUnreachable.help}"
                raise
        return self._with_lost(exported, lost)

    def drain(self) -> None:
        """Copy what is left here of processes that nobody exports any more.

        Raises:
            StoreUnreachable: The store takes nothing now.
        """
        if self._silence is not None:
            with self._asking():
                self.store.get(f"{OWN}/is-there")  # which no store has: it answers or does not
        for path in sorted(states_in(self.root)):
            with contextlib.suppress(HistoryBusy, DamagedHistory), locked(self.root, path):
                self._copy(path.stem)
                self._forget(path)

    def waiting(self) -> int:
        """How many bytes of rows are here."""
        found = self.root.glob("project=*/job=*/table=*/day=*/*.parquet")
        return sum(path.stat().st_size for path in found if part_of(path.name) and path.exists())

    def _waits(self) -> str:
        """What waits here, in words."""
        waiting = self.waiting()
        if not waiting:
            return ""
        return f"{size(waiting)} wait in {self.root}, and go there with a later export. "

    def _check_room(self) -> None:
        """Take no more than may wait.

        Raises:
            HistoryUnwritable: So much waits already.
        """
        waiting = self.waiting()
        if waiting >= self._most_bytes:
            why = f"{size(waiting)} wait for {self.store.url} there already"
            raise HistoryUnwritable(str(self.root), why)

    def _begin(self, card: Card, process: str) -> None:
        """See to it that the books of a process are here, and nowhere else.

        Raises:
            HistoryBusy: Another spool has them.
            StoreUnreachable: That cannot be found out.
        """
        path = state_file(self.root, process)
        with contextlib.suppress(DamagedHistory):
            self._forget(path)
            if read_state(path) is not None:
                return
        path.unlink(missing_ok=True)
        with self._asking():
            self._claim(card, process)
            self._restore(card, process)

    def _claim(self, card: Card, process: str) -> None:
        """Be the only one who exports a process to the store.

        Raises:
            HistoryBusy: Another spool does.
        """
        busy = f"{called(card)} is exported to {self.store.url} from another spool"
        claim(self.store, exporters_of(process), self._who, busy=busy)

    def _restore(self, card: Card, process: str) -> None:
        """Get the books of a process from the store, and the files that they do not count."""
        data = self.store.get(self._name(state_file(self.root, process)))
        if data is None:
            return
        state = self._state_in(data, process)
        tables = state["tables"]
        for one in self.store.objects(job_folder(state["project"], state.get("job", card.job))):
            path = Path(one.name)
            part, counted = part_of(path.name), _counted(tables, path)
            is_late = part is not None and part[0] == process and part[1] > counted
            if is_late or (look_of(path.name) == process and not state.get("whole")):
                self._fetch(one.name)
        Shelf(self.root, process).put_json(state_file(self.root, process), state)

    def _find_lost(self, folder: ProcessFolder, card: Card, process: str) -> int:
        """Have exported again what the store had of a process, and has no more; how many rows.

        Raises:
            HistoryBusy: Another spool exports it meanwhile.
        """
        path, note = state_file(self.root, process), shipped_file(self.root, process)
        state, left = _known(path), (_known(note) or {}).get("tables")
        if state is None or left is None:  # nothing was copied, or by an earlier version
            return 0
        with contextlib.suppress(StoreUnreachable, DamagedHistory), self._asking():
            there = self._tables_there(process)
            if there == left:
                return 0
            self._claim(card, process)
            waiting = self._rows_waiting(process, state)
            tables = tables_again(folder, state["tables"], left, there, waiting)
            state |= {"tables": tables, "told": bool(there), "whole": False}
            Shelf(self.root, process).put_json(path, state)
            note.unlink()  # last: whoever is killed before does the same again
            return rows_lost(left, there)
        return 0

    def _tables_there(self, process: str) -> dict[str, Any]:
        """The books that the store has of a process; none where it has lost them.

        Raises:
            StoreUnreachable: It is not known: a bucket that is away has lost nothing.
            DamagedHistory: They are not what this version knows.
        """
        name = self._name(state_file(self.root, process))
        data = self.store.get(name)
        if data is None and name not in {one.name for one in self.store.objects(f"{OWN}/state")}:
            return {}
        tables: dict[str, Any] = self._state_in(data or b"", process)["tables"]
        return tables

    def _rows_waiting(self, process: str, state: dict[str, Any]) -> dict[str, int]:
        """How many rows of each table are in files here."""
        found: dict[str, int] = defaultdict(int)
        for file in self._files(process, state):
            if part_of(file.name):
                found[_table_of(Path(self._name(file)))] += pq.read_metadata(file).num_rows
        return found

    def _with_lost(self, exported: Exported, lost: int) -> Exported:
        """What was exported, and what the store had lost of it."""
        if not lost:
            return exported
        told = (
            f"{lost:,} rows that were exported before are not in {self.store.url} any more: what is"
            " on record of them still was exported again"
        )
        return dataclasses.replace(exported, lost=lost, notes=(*exported.notes, told))

    def _state_in(self, data: bytes, process: str) -> dict[str, Any]:
        """The books that an object has.

        Raises:
            DamagedHistory: It has none that this version knows.
        """
        name = f"{self.store.url}/{self._name(state_file(self.root, process))}"
        try:
            return checked_state(json.loads(data), name)
        except ValueError:
            raise DamagedHistory(name, "it is no JSON") from None

    def _fetch(self, name: str) -> None:
        data = self.store.get(name)
        if data is not None:
            Shelf(self.root, "fetched").put_bytes(self.root / name, data)

    def _copy(self, process: str) -> None:
        """Copy what the books of a process count, and then the books; by who holds its lock.

        Raises:
            StoreUnreachable: Not all of it is there yet.
            DamagedHistory: The books are damaged.
        """
        path = state_file(self.root, process)
        state = read_state(path)
        if state is None:
            return
        told_at, note = path.stat().st_mtime_ns, shipped_file(self.root, process)
        shipped: dict[str, Any] = _known(note) or {"looks": {}}
        before = json.dumps(shipped)
        with self._asking():
            if not shipped.get("is_begun"):
                self._put_books(process, {**state, "tables": {}, "told": False, "whole": False})
            for file in self._files(process, state):
                self._copy_file(file, state, shipped["looks"])
            if shipped.get("books") != told_at:
                self._put_books(process, state)
        shipped |= {"is_begun": True, "books": told_at, "tables": state["tables"]}
        if json.dumps(shipped) != before:
            Shelf(self.root, process).put_json(note, shipped)
        if state.get("whole"):
            self._remove_looks(process, state)

    def _copy_file(self, file: Path, state: dict[str, Any], looks: dict[str, str]) -> None:
        """Copy a file: rows that the books count, or what a process is now."""
        name, part = self._name(file), part_of(file.name)
        if part is None:
            data = file.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            if looks.get(name) != digest:
                self.store.put(name, data)
                looks[name] = digest
        elif part[1] <= _counted(state["tables"], Path(name)):
            self.store.put(name, file.read_bytes())
            file.unlink()

    def _files(self, process: str, state: dict[str, Any]) -> Iterator[Path]:
        """What is here of a process: who it is, its rows, and then how many of them there are."""
        project = f"project={glob.escape(quoted(state['project']))}"
        pattern = f"{project}/job=*/table=*/day=*/{glob.escape(process)}*.parquet"
        found = [
            path
            for path in self.root.glob(pattern)
            if process in (look_of(path.name), (part_of(path.name) or ("",))[0])
        ]
        order = {PROCESSES.name: 0, EXPORTS.name: 2}
        yield from sorted(
            found, key=lambda path: (order.get(_table_of(Path(self._name(path))), 1), path)
        )

    def _put_books(self, process: str, state: dict[str, Any]) -> None:
        self.store.put(self._name(state_file(self.root, process)), json.dumps(state).encode())

    def _remove_looks(self, process: str, state: dict[str, Any]) -> None:
        """Tell no more what a process is: in the store that may be with others by now."""
        for file in self._files(process, state):
            if part_of(file.name) is None:
                file.unlink(missing_ok=True)

    def _forget(self, path: Path) -> None:
        """Remove the books of a process that nobody has exported for long; the store has them."""
        state, note = read_state(path), shipped_file(self.root, path.stem)
        if state is None or path.stat().st_mtime > time.time() - _KEPT_S:
            return
        if (_known(note) or {}).get("books") == path.stat().st_mtime_ns:
            self._remove_looks(path.stem, state)
            note.unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask the store, unless it gave no answer a moment ago.

        Raises:
            StoreUnreachable: It gives none.
        """
        if self._silence is not None and time.monotonic() < self._rests_until_s:
            raise self._silence
        try:
            yield
        except StoreUnreachable as error:
            self._silence, self._rests_until_s = error, time.monotonic() + _REST_S
            raise
        self._silence = None

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _counted(tables: dict[str, Any], path: Path) -> int:
    """How many files of rows the books count of the table of a file."""
    books = tables.get(_table_of(path))
    return 0 if books is None else int(books["number"])


def _table_of(path: Path) -> str:
    """The table of a file in a history."""
    return unquoted(path.parts[2].partition("=")[2]) or ""


def _known(path: Path) -> dict[str, Any] | None:
    """What was written down of what is in the store; None where that is lost."""
    with contextlib.suppress(DamagedHistory):
        known: dict[str, Any] | None = read_json(path)
        return known
    return None
