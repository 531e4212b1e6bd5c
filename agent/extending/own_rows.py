"""Writes the rows of a table that the script or a plugin has declared.

Rules of this file: runs in whichever thread adds a row, raises nothing into it, waits for no device
and keeps no value. A row is written whole at once; only a number that is on its way from a device
has its row completed once more. What cannot be stored is NULL, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import get_native_id
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ring.format import DONE, NULL_INT
from ...ring.rows import null_of
from ...ring.writer import RingWriter
from ...safety.guard import Guard, pass_on
from ...script.own_tables import ScriptTable
from ..recording.source import SourceReport
from .host import Host
from .values import Values, store_of

if TYPE_CHECKING:
    from ..sources.steps.rows.late_rows import LateRows


class _Place(NamedTuple):
    """A column of the script's, in the order in which a row holds them."""

    name: str
    store: Callable[[Any], Any]
    null: Any
    type: str


class OwnRows:
    """What writes a table, in the place of `ScriptTable.write`.

    Attributes:
        guard: Counts its faults.
        table: What it writes.
        on_stop: Called as it writes no more.
    """

    def __init__(self, table: ScriptTable, ring: RingWriter, agent: Host) -> None:
        """Prepare to write into a ring."""
        self.table, self._ring, self._agent = table, ring, agent
        self.on_stop: Callable[[], None] = lambda: None
        self.guard = Guard(table.declared.name, self.stop)
        self.guard.on_fault = ring.count_dropped
        layout = ring.layout
        self._pack = layout.open_struct.pack_into
        self._has_step = any(field.column.name == "step" for field in layout.opening)
        self._places = tuple(
            [
                _Place(
                    f.column.name, store_of(f.code, f.column.type), null_of(f.code), f.column.type
                )
                for f in layout.closing
            ]
        )
        self._known = frozenset(place.name for place in self._places)
        self._is_on = False
        self._values = Values(agent)
        self._late: LateRows | None = None

    def start(self) -> None:
        """Have rows come here."""
        self._is_on = True
        self.table.write = self.write

    def stop(self) -> None:
        """Have rows come here no more."""
        self._is_on = False
        self.table.write = None
        self.on_stop()

    def abandon(self) -> None:
        """Runs in a forked child: write nothing into what is the parent's, and call nobody."""
        self._is_on = False
        self.table.write = None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        if self._late is not None:
            self._late.end()
        self._ring.close()

    def write(self, values: Mapping[str, Any]) -> None:
        """Write a row; never raises."""
        if not (self._is_on and self._agent.settings.recording):
            return
        try:
            self._write(values)
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()

    def report(self) -> SourceReport:
        """How it stands."""
        state = "on" if self._agent.settings.recording else "off"
        told = [n for n in (self._ring.problem, self.guard.problem, self._values.note) if n]
        return SourceReport(
            source=self.table.declared.name,
            state="failed" if self.guard.has_failed else state,
            cost_s=None,
            faults=self.guard.faults,
            note="; ".join(told) or None,
            table=self.table.declared.full_name,
        )

    def _write(self, values: Mapping[str, Any]) -> None:
        row: list[Any] = []
        later: list[tuple[int, Any]] = []
        for name, store, null, kind in self._places:
            value = values.get(name)
            if value is None:
                row.append(null)
                continue
            try:
                row.append(store(value))
            except Exception:  # noqa: BLE001 - whatever a value of the script's does
                pass_on()
                stored, number = self._values.otherwise(name, kind, value, store)
                if number is not None:
                    later.append((len(row), number))
                row.append(null if stored is None else stored)
        if not values.keys() <= self._known:
            unknown = next(name for name in values if name not in self._known)
            self._values.refuse(f"there is no column {unknown}")
        self._put(row, later)

    def _put(self, row: list[Any], later: list[tuple[int, Any]]) -> None:
        """Put a row into the ring: its step, its time and its thread in the order of its layout."""
        ring = self._ring
        word = ring.next_word()
        opening: tuple[int, ...] = (time.perf_counter_ns(), get_native_id())
        if self._has_step:
            step = self._agent.training.told_step()
            opening = (NULL_INT if step is None else step, *opening)
        self._pack(ring.buffer, ring.offset_of(word), word, *opening, *row, word + DONE)
        if later or self._late is not None:
            self._complete(word, row, later)

    def _complete(self, word: int, row: list[Any], later: list[tuple[int, Any]]) -> None:
        """Complete what waits for numbers, and have this row wait, if it does."""
        if self._late is None:
            from ..sources.steps.rows.late_rows import LateRows

            self._late = LateRows()
        if later:
            self._late.write(self._ring, word, row, later)
        self._late.flush()
