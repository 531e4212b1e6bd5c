"""Writes the rows of a table that the script or a plugin has declared.

Rules of this file: runs in whichever thread adds a row, raises nothing into it, waits for no device
and keeps no value. A row is written whole at once; only a number that is on its way from a device
has its row completed once more. What cannot be stored is NULL, and counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from threading import get_native_id
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ring.format import DONE, NULL_INT, is_inline
from ...ring.rows import null_of
from ...ring.writer import RingWriter
from ...safety.guard import Guard, pass_on
from ...script.own_tables import ScriptTable
from ..recording.source import SourceReport
from .host import Host

if TYPE_CHECKING:
    from ..sources.steps.rows.late_rows import LateRows

_LEAST, _MOST = -(2**63) + 1, 2**63 - 1
_WORDS = {"int64": "an int", "float64": "a float", "bool": "a bool", "text": "a str"}


class _Refused(Exception):
    """A value that its column cannot hold, and why."""


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
                    f.column.name, _store_of(f.code, f.column.type), null_of(f.code), f.column.type
                )
                for f in layout.closing
            ]
        )
        self._known = frozenset(place.name for place in self._places)
        self._is_on = False
        self._refused = 0
        self._why = ""
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
        notes = [self._ring.problem, self.guard.problem]
        if self._refused:
            values = "1 value" if self._refused == 1 else f"{self._refused:,} values"
            notes.append(f"{values} could not be stored, the newest: {self._why}")
        told = [note for note in notes if note]
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
                stored, number = self._stored_otherwise(name, kind, value, store)
                if number is not None:
                    later.append((len(row), number))
                row.append(null if stored is None else stored)
        if not values.keys() <= self._known:
            unknown = next(name for name in values if name not in self._known)
            self._refuse(f"there is no column {unknown}")
        self._put(row, later)

    def _put(self, row: list[Any], later: list[tuple[int, Any]]) -> None:
        """Put a row into the ring: its step, its time and its thread in the order of its layout."""
        ring = self._ring
        word = ring.next_word()
        opening: tuple[int, ...] = (time.perf_counter_ns(), get_native_id())
        if self._has_step:
            step = self._agent.training.step()
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

    def _stored_otherwise(
        self, name: str, kind: str, value: Any, store: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        """What a value of another type is stored as, and the number that will come for it."""
        wanted = f"{name} is {_WORDS[kind]}"
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self._of_tensor(wanted, kind, value, store)
        try:
            if getattr(value, "shape", None) == () and hasattr(value, "item"):  # one of numpy's
                value = value.item()
            return store(value), None
        except Exception:  # noqa: BLE001 - as in `_write`
            pass_on()
            given = "a number that is too large or has a fraction"
            if type(value) not in (int, float):
                given = f"a {type(value).__name__}"
            self._refuse(f"{wanted}, and was given {given}")
            return None, None

    def _of_tensor(
        self, wanted: str, kind: str, tensor: Any, store: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        """The number in a tensor, if it is here; else what will tell it."""
        from ..sources.numbers.number import read_number

        if kind == "float64" and hasattr(self._agent.training, "accelerator"):
            number = read_number(tensor, self._agent.training.accelerator)
            if number is not None:
                return None, number
        is_plain = type(tensor) is sys.modules["torch"].Tensor
        if is_plain and tensor.is_cpu and tensor.numel() == 1 and kind != "text":
            try:
                return store(tensor.item()), None
            except (_Refused, OverflowError):
                self._refuse(f"{wanted}, and was given a tensor of another type")
                return None, None
        what = f"of {tensor.numel()} elements" if tensor.numel() != 1 else f"on {tensor.device}"
        self._refuse(f"{wanted}, and was given a tensor {what}")
        return None, None

    def _refuse(self, why: str) -> None:
        self._refused += 1
        self._why = why


def _store_of(code: str, kind: str) -> Callable[[Any], Any]:
    """What turns a value of a column's type into what is stored."""
    if is_inline(code):
        return _text_of(int(code[:-1]))
    return {"int64": _whole, "float64": _number, "bool": _flag}[kind]


def _whole(value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not _LEAST <= value <= _MOST:
        raise _Refused
    return int(value)


def _number(value: Any) -> float:
    if not isinstance(value, (float, int)):
        raise _Refused
    return float(value)


def _flag(value: Any) -> int:
    if value is True:
        return 1
    if value is False:
        return 0
    if type(value) is not int or value not in (0, 1):
        raise _Refused
    return value


def _text_of(width: int) -> Callable[[Any], bytes]:
    """What cuts a text where its column ends, between two letters."""

    def text(value: Any) -> bytes:
        if not isinstance(value, str):
            raise _Refused
        data = value.encode("utf-8", "replace")
        return data if len(data) <= width else data[:width].decode("utf-8", "ignore").encode()

    return text
