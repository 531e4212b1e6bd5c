"""Copies what is new in the record of a process into a history.

Rules of this file: the order of things. Whether the process has ended is found out before its rings
are read. A file of rows holds what is exported once it is there (`Books`), so the rename that makes
it visible is all there is to lose or to double; the state is written last, and only says where to
go on looking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import CardDamaged, DamagedHistory, RingError
from ..linux import process as process_of
from ..messages.card import Card
from ..messages.frozen import dataclass
from ..ring import names
from ..ring.arrow_tables import schema_of, to_arrow, without_names
from ..ring.columns.recorded import read_or_empty
from ..ring.format import NULL_INT
from ..ring.reader import RingSnapshot, read_ring
from ..rundir.folders import ProcessFolder
from ..rundir.project import project_of
from ..sql.process_columns import added_values
from ..tables import ENVIRONMENT, TABLES_BY_NAME, Column, Table
from .books import Books, Numbers
from .files import Shelf, read_state
from .identity import environment_of, has_ended, last_step, process_row
from .layout import Partition, day_pattern, look_name, part_name, quoted, state_file
from .merged import is_look_merged, newest_books, place_of_look, told_before, with_later_files
from .naming import exporting, process_name, run_of
from .settled import Moment, are_settled, times_of
from .swap import reading
from .tables import EXPORTS, PROCESSES, stored

_DAY_NS = 86_400 * 10**9
_MOST_ROWS = 1 << 20
"""Rows of a file."""
NameRun = Callable[[Path, str, Card, str], str]
"""Gives the run of a process: of a history, a project, its card and its name."""
IsWithOthers = Callable[[Path, str], bool]
"""Whether what a process is was put together with others: of a folder and its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTable:
    """What a history has of a table of a process.

    Attributes:
        new: Rows that came with this export.
        exported: All rows that are there.
        overwritten: Rows that made room for newer ones before they were exported.
        damaged: Rows of an ended process that could not be read.
        waiting: Rows that may still change; they come with a later export.
    """

    name: str
    new: int
    exported: int
    overwritten: int
    damaged: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a history has of a process.

    Attributes:
        process: Its name there.
        job: Under which its rows are there: that of its first export.
        has_ended: Whether it had ended, so that nothing will come any more.
        notes: What is missing, and why, one sentence each.
        lost: Rows that were exported before and are not there any more; those of them that are on
            record still are among the new ones.
    """

    run: str
    process: str
    project: str
    job: str | None
    rank: int | None
    host: str
    pid: int
    has_ended: bool
    tables: tuple[ExportedTable, ...]
    notes: tuple[str, ...]
    lost: int = 0


def export_process(folder: ProcessFolder, root: Path, *, project: str | None = None) -> Exported:
    """Copy what is new in the record of a process into a history; it may run, hang or have ended.

    Args:
        project: What its run belongs to; only the first export of a process decides that.

    Raises:
        CardDamaged: Who it is is not known.
        HistoryBusy: Another export of it is under way.
        HistoryUnwritable: The folder cannot be written to.
        DamagedHistory: A file that this export would have to go on from is damaged.
    """
    card = folder.read_card()
    if card is None:
        raise CardDamaged(str(folder.path))
    with exporting(root, card):
        return export_alone(folder, card, root, project=project)


def export_alone(
    folder: ProcessFolder,
    card: Card,
    root: Path,
    *,
    project: str | None,
    name_run: NameRun = run_of,
    is_with_others: IsWithOthers = is_look_merged,
) -> Exported:
    """Do so, by who holds the lock of that process; see `export_process`.

    Args:
        name_run: Says which run a process belongs to that was never exported before.
        is_with_others: Says of what was told once, and is gone, whether that is why.
    """
    export = _Export(
        folder, card, root, project=project, name_run=name_run, is_with_others=is_with_others
    )
    return export.run()


class _Export:
    """One export of one process, by who holds its lock."""

    def __init__(
        self,
        folder: ProcessFolder,
        card: Card,
        root: Path,
        *,
        project: str | None,
        name_run: NameRun,
        is_with_others: IsWithOthers,
    ) -> None:
        self._folder, self._card, self._root = folder, card, root
        self._name_run, self._is_with_others = name_run, is_with_others
        self._process = process_name(card)
        self._state_file = state_file(root, self._process)
        self._shelf = Shelf(root, self._process)
        self._shelf.clear()
        self._notes: list[str] = []
        self._is_lost, self._is_whole, self._is_told = False, True, True
        self._state = self._begun(project)
        self._was_told = bool(self._state.get("told", self._state["tables"]))
        self._was_whole = bool(self._state.get("whole"))

    def run(self) -> Exported:
        """Do it."""
        ended = has_ended(self._folder)  # before any ring is read
        is_here = self._card.boot_id == process_of.boot_id()
        moment = Moment(
            has_ended=ended,
            last_step=last_step(self._folder),
            now_ns=time.time_ns(),
            monotonic_ns=time.perf_counter_ns() if is_here else None,
        )
        self._tell_who(moment)
        rings = sorted(self._folder.path.glob("[!.]*.ring"))
        done = [self._table(path, moment) for path in rings]
        tables = tuple(table for table in done if table is not None)
        self._was_whole &= not (is_new := any(table.new for table in tables))
        self._put_look(EXPORTS, _export_rows(tables, self._state["tables"]))
        if not self._is_told and is_new:
            self._notes.append(
                "what it is stays as told before, for that was put together with others"
            )
        self._state |= {"told": True, "whole": ended and self._is_whole}
        self._shelf.put_json(self._state_file, self._state)
        return Exported(
            run=self._state["run"],
            process=self._process,
            project=self._state["project"],
            job=self._state["job"],
            rank=self._card.rank,
            host=self._card.host,
            pid=self._card.pid,
            has_ended=ended,
            tables=tables,
            notes=tuple(self._notes),
        )

    def _begun(self, project: str | None) -> dict[str, Any]:
        """The state of the last export; that of a first one is written down at once."""
        try:
            state = read_state(self._state_file)
        except DamagedHistory as error:
            self._notes.append(f"{error.message} It is written anew.")
            self._is_lost, state = True, None
        if state is None:
            state = self._begun_before() or self._begun_now(project or project_of(self._card))
            self._shelf.put_json(self._state_file, state)
        elif "day" not in state:  # as earlier versions have written it
            state |= place_of_look(self._root, state["project"], self._process) or self._place()
        if project not in (None, state["project"]):
            self._notes.append(
                f"its project is {state['project']}, as its first export said, and not {project}"
            )
        return state

    def _begun_now(self, project: str) -> dict[str, Any]:
        """The state before the first export."""
        run = self._name_run(self._root, project, self._card, self._process)
        return {"run": run, "project": project, **self._place(), "tables": {}}

    def _place(self) -> dict[str, Any]:
        """Where what it is belongs; it stays there, whatever job or day an agent tells later."""
        return {"job": self._card.job, "day": _day(self._card.started_ns // _DAY_NS)}

    def _begun_before(self) -> dict[str, Any] | None:
        """That of a process whose state is lost, by the files that are there."""
        job, day = self._place().values()
        where = {} if self._is_lost else {"job": quoted(job), "day": day}  # else it may be new
        with reading(self._root):
            found = told_before(self._root, self._process, day_pattern(PROCESSES.name, **where))
        self._is_lost |= found is not None
        return found and {**found, "tables": {}, "told": True}

    def _tell_who(self, moment: Moment) -> None:
        """Say who it is and in what it runs, before any row of it is there."""
        environment = environment_of(self._folder)
        row = process_row(self._folder, self._card, self._process, moment, environment)
        self._put_look(PROCESSES, _table_of(PROCESSES, [row]))
        self._put_look(ENVIRONMENT, environment)

    def _table(self, path: Path, moment: Moment) -> ExportedTable | None:
        """Export what is new in a ring."""
        partition = self._partition(path.stem)
        told = self._state["tables"].get(path.stem)
        books = self._books_of_files(partition) if told is None else Books.from_json(told)
        books = with_later_files(books, partition, self._process)
        before = books.rows
        try:
            snapshot = read_ring(path)
            texts = names.decode_names(read_or_empty(self._folder))
        except FileNotFoundError:
            return None
        except (RingError, OSError) as error:
            self._notes.append(f"the ring of {path.stem} cannot be read: {error}")
            self._is_whole = False
            return None
        if not snapshot.written and not books.upto:
            return None
        if _is_another(books, snapshot):
            books.begin_anew()
            self._notes.append(f"the record of {path.stem} was begun anew, and counts from 1 again")
        if lost := without_names(snapshot, texts):
            self._notes.append(
                f"the list of names is damaged: {lost} texts of {path.stem} are NULL"
            )
        books.see(written=snapshot.written, overwritten=snapshot.overwritten)
        self._put_rows(snapshot, texts, books, partition, are_settled(snapshot, moment))
        if moment.has_ended:
            books.give_up()
        self._state["tables"][path.stem] = books.to_json()
        return ExportedTable(
            name=path.stem,
            new=books.rows - before,
            exported=books.rows,
            overwritten=books.overwritten,
            damaged=books.damaged,
            waiting=len(books.waiting),
        )

    def _books_of_files(self, partition: Partition) -> Books:
        """The books of a table that the state does not have."""
        if not self._is_lost:
            return Books()
        with reading(self._root):
            return newest_books(partition, self._process)

    def _put_rows(
        self,
        snapshot: RingSnapshot,
        texts: Sequence[str | None],
        books: Books,
        partition: Partition,
        settled: Any,
    ) -> None:
        """Write what is not in the history yet, a file for each day."""
        numbers, times = snapshot.rows.numbers, times_of(snapshot)
        chosen = np.flatnonzero(settled & books.are_waiting(numbers))
        if not len(chosen):
            return
        rows = self._with_columns(partition.table, to_arrow(snapshot, texts, None))
        at_ns = np.where(
            times == NULL_INT, self._card.started_ns, times + snapshot.header.clock_offset_ns
        )
        for day, places in _by_day(chosen, at_ns):
            books.take(numbers[places], times[places])
            final = partition.day(day) / part_name(self._process, books.number)
            self._shelf.put(final, rows.take(pa.array(places)), books)

    def _put_look(self, table: Table, rows: pa.Table) -> None:
        """Put what a process is now in the place of what it was, unless that is with others.

        Of one that was exported whole it stays the same file, which Iceberg may know.
        """
        folder = self._partition(table.name).day(self._state["day"])
        final = folder / look_name(self._process)
        with reading(self._root):
            is_there = final.exists()
            self._is_told = is_there or not (
                self._was_told and (self._was_whole or self._is_with_others(folder, self._process))
            )
            if self._is_told and not (self._was_whole and is_there):
                self._shelf.put(final, self._with_columns(table.name, rows, table))

    def _partition(self, table: str) -> Partition:
        return Partition(
            root=self._root, project=self._state["project"], job=self._state["job"], table=table
        )

    def _with_columns(self, name: str, rows: pa.Table, table: Table | None = None) -> pa.Table:
        """Rows as they are stored: with whose they are in front."""
        table = table or TABLES_BY_NAME.get(name) or _undeclared(name, rows)
        values = {"run": self._state["run"], **added_values(table, self._card)}
        added = stored(table)[: -len(table.columns)]
        arrays: list[Any] = [
            pa.repeat(
                pa.scalar(
                    values[column.name], pa.string() if column.type == "text" else pa.int64()
                ),
                rows.num_rows,
            )
            for column in added
        ]
        fields = [pa.field(c.name, a.type) for c, a in zip(added, arrays, strict=True)]
        return pa.Table.from_arrays(
            [*arrays, *rows.columns], schema=pa.schema([*fields, *rows.schema])
        )


def _is_another(books: Books, snapshot: RingSnapshot) -> bool:
    """Whether a ring is not the one that was exported from before."""
    if snapshot.written < books.upto:
        return True
    number, at = books.mark
    place = int(np.searchsorted(snapshot.rows.numbers, number))
    is_there = place < len(snapshot.rows) and snapshot.rows.numbers[place] == number
    return bool(number and is_there and times_of(snapshot)[place] != at)


def _by_day(places: Any, at_ns: Numbers) -> Iterator[tuple[str, Any]]:
    """Rows by their days, the earliest first, no more together than a file may have."""
    days = at_ns[places] // _DAY_NS
    for day in np.unique(days):
        of_day = places[days == day]
        for first in range(0, len(of_day), _MOST_ROWS):
            yield _day(int(day)), of_day[first : first + _MOST_ROWS]


def _day(number: int) -> str:
    """A day since the epoch as its folder is called."""
    return str(np.datetime64(number, "D"))


def _table_of(table: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as the table they belong to."""
    return pa.Table.from_pylist(list(rows), schema=schema_of(table))


def _export_rows(tables: Sequence[ExportedTable], books: dict[str, Any]) -> pa.Table:
    """The rows of `tables.EXPORTS`."""
    return _table_of(
        EXPORTS,
        [
            {
                "name": table.name,
                "exported": table.exported,
                "overwritten": table.overwritten,
                "damaged": table.damaged,
                "waiting": table.waiting,
                "files": books[table.name]["number"],
            }
            for table in tables
        ],
    )


def _undeclared(name: str, rows: pa.Table) -> Table:
    """A table that this version does not know."""
    columns = tuple(Column(name=column, type="int64", doc="") for column in rows.column_names)
    return Table(name=name, kind="recorded", doc="", columns=columns)
