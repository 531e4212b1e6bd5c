"""Writes the rows of an out-of-memory error: python.ooms and the two tables beside it.

Rules of this file: runs in the training threads where memory has just run out. The row itself comes
first, since what follows it may find no memory.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from typing import Any, NamedTuple

from ....ring.format import DONE, NULL_INT
from ....ring.writer import RingWriter
from ....tables import OOM_BOUNDS, OOM_PHASES, STAGES
from ..accelerator import device_kind
from ..shared.recording import Recording
from ..shared.thread_state import ThreadState
from ..steps.phases import BACKWARD, DATA, FORWARD, LOSS, OPTIMIZER
from .errors import OomError
from .growth import growth_before
from .host_room import HostRoom, host_room
from .place import NO_PLACE, Given, Place

_MOST_ROWS = 10_000
"""Beyond so many errors none is recorded: each has texts of its own, whose file is bounded."""
_LONGEST_LOOK_NS = 200_000_000
"""Once looking for tensors has kept a processor longer than that, it is not done any more."""
_PHASES = {
    DATA: "data",
    FORWARD: "forward",
    LOSS: "loss",
    BACKWARD: "backward",
    OPTIMIZER: "optimizer",
}
_DEVICE = OOM_BOUNDS.index("device")


class OomRings(NamedTuple):
    """The rings that are written to."""

    ooms: RingWriter
    categories: RingWriter
    growth: RingWriter


class OomRow(NamedTuple):
    """A row that was written.

    Attributes:
        values: Its closing columns.
        has_categories: Whether the tensors have been looked for.
    """

    word: int
    values: dict[str, Any]
    has_categories: bool


class OomRows:
    """Writes them.

    Attributes:
        spared_bytes: Address space that was let go for this, and was not there for the one who
            asked for memory.
    """

    def __init__(self, recording: Recording, rings: OomRings) -> None:
        self.spared_bytes = 0
        self._recording = recording
        self._rings = rings
        self._looks = True

    def write(
        self,
        found: OomError,
        thread: ThreadState,
        phase: int | None,
        place: Place = NO_PLACE,
        *,
        looks: bool,
    ) -> OomRow | None:
        """Write the row, then what led to it, then what the tensors are.

        Args:
            phase: The number of the phase that it ended; None where that is not known.
            looks: Whether it is safe to look at the tensors now.
        """
        rings, recording, now = self._rings, self._recording, time.perf_counter_ns()
        word = rings.ooms.open_row(now, recording.step, thread.native_id)
        if word >> 2 > _MOST_ROWS:
            return None
        is_training = thread.native_id == recording.training_thread
        phases = recording.rows.phases
        at = phase if phase is not None else phases.now() if is_training else None
        name = _PHASES.get(at, "other") if at is not None else "other"
        batch = recording.rows.micro_batch if is_training else None
        is_of_batch = batch is not None or name in {"backward", "optimizer"}
        shape = recording.rows.shape if is_training and is_of_batch else None
        values = {
            "phase": OOM_PHASES.index(name),
            "micro_batch": NULL_INT if batch is None else batch,
            **self._amounts(found),
            **_of_shape(shape, recording),
            **self._told(found.text, place),
        }
        rings.ooms.close_named(word, DONE, values)
        self._write_growth(word, now)
        has_categories = looks and self._write_categories(word, values["device"])
        return OomRow(word, values, has_categories)

    def complete(self, row: OomRow, text: str, place: Place) -> None:
        """Add what is known only as the error itself comes."""
        self._rings.ooms.close_named(row.word, DONE, {**row.values, **self._told(text, place)})
        if not row.has_categories:
            self._write_categories(row.word, row.values["device"])

    def _amounts(self, found: OomError) -> dict[str, int]:
        """The columns of bytes, and where they are."""
        room = HostRoom(_DEVICE, NULL_INT, NULL_INT, NULL_INT)
        with contextlib.suppress(OSError):
            room = host_room(self.spared_bytes)
        device = "cpu" if found.is_host else f"{device_kind()}:{found.device_index or 0}"
        amounts = {
            "requested_bytes": found.requested,
            "free_bytes": room.free if found.is_host else found.free,
            "total_bytes": room.total if found.is_host else found.total,
            "allocated_bytes": found.allocated,
            "reserved_bytes": found.reserved,
            "resident_bytes": room.resident,
        }
        return {
            "device": self._recording.names.intern(device),
            "bounded_by": room.bound if found.is_host else _DEVICE,
            **{name: NULL_INT if value is None else value for name, value in amounts.items()},
        }

    def _told(self, text: str, place: Place) -> dict[str, int]:
        """The columns of texts, as far as they are known."""
        intern = self._recording.names.intern
        given = place.given or Given(None, None)
        known: dict[str, Any] = {
            "error": text or None,
            "module": place.module,
            "root": place.root,
            "batch": given.text,
            "samples": given.samples,
        }
        return {
            name: intern(value) if isinstance(value, str) else value
            for name, value in known.items()
            if value is not None
        }

    def _write_growth(self, word: int, now: int) -> None:
        """The calls before it by which memory has grown."""
        ring, trace = self._rings.growth, self._recording.trace
        intern = self._recording.names.intern
        for event in growth_before(trace):
            row = ring.open_row(word >> 2, now, event.step)
            values = {
                "module": event.module,
                "stage": intern(STAGES[event.stage]),
                "growth_bytes": event.growth_bytes,
                "allocated_bytes": event.allocated_bytes,
                "age_s": (now - event.ended_ns) * 1e-9,
            }
            ring.close_named(row, DONE, values)

    def _write_categories(self, word: int, full: int) -> bool:
        """What the tensors that are alive are for; returns whether that could be looked at.

        While another thread is in a backward pass or an optimizer's step, they must not be.

        Args:
            full: The device whose memory has run out: its name's number.
        """
        if not self._looks or self._recording.safe_points.at_work.is_elsewhere():
            return False
        from ..storage.bounded.sights import LONGEST_S, Limits
        from ..storage.storages import storages_now

        begun, spent = time.perf_counter_ns(), time.thread_time_ns()
        sizes: Counter[tuple[str, str]] = Counter()
        counts: Counter[tuple[str, str]] = Counter()
        dtypes: dict[tuple[str, str], Counter[str]] = {}
        limits = Limits(LONGEST_S, math.inf)
        for storage in storages_now(self._recording, limits=limits):
            key = (storage.category, storage.device)
            sizes[key] += storage.bytes
            counts[key] += 1
            dtypes.setdefault(key, Counter())[storage.dtype] += storage.bytes
        ring, intern = self._rings.categories, self._recording.names.intern
        for key, size in sizes.most_common():
            category, device = key
            row = ring.open_row(word >> 2, begun)
            values = {
                "category": intern(category),
                "device": intern(device),
                "bytes": size,
                "tensors": counts[key],
                "dtype": intern(dtypes[key].most_common(1)[0][0]),
            }
            ring.close_named(row, DONE, values)
        if not limits.knows_gradients:
            row = ring.open_row(word >> 2, begun)
            ring.close_named(row, DONE, {"category": intern("gradients"), "device": full})
        self._looks = time.thread_time_ns() - spent < _LONGEST_LOOK_NS
        return True


def _of_shape(shape: tuple[int, ...] | None, recording: Recording) -> dict[str, int]:
    """The columns of what the root was given, from the first of its tensors alone."""
    if not shape:
        return {}
    return {"batch": recording.names.intern(str(list(shape))), "samples": shape[0]}
