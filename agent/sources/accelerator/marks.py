"""Marks in the queues of devices: events of CUDA's, which are made once and used again.

Rules of this file: an event belongs to the device on which it was first recorded. To make one is
several times as dear as to record it. One that is asked while a graph is being captured, or on the
wrong device, raises; so that is known before.
"""

from __future__ import annotations

from typing import Any

from ....ring.format import NULL_FLOAT
from ....safety.guard import pass_on
from .api import number_of
from .captures import is_capturing
from .owned import Owned, pool_of

_MOST = 16_384
"""How many events a device has at most: four steps of 4096 calls in which modules are timed."""
_MS = 1e-3


class Lane:
    """One queue of a device's.

    Attributes:
        newest: The number of the last mark that was set in it.
        reached: The number of the last one that the device is known to have come to.
    """

    __slots__ = ("device", "newest", "reached")

    def __init__(self, device: int) -> None:
        self.device = device
        self.newest = self.reached = 0


class EventMark:
    """See `Mark`; its event goes back to the others once nobody has the mark any more."""

    __slots__ = ("_number", "_spare", "event", "lane")

    def __init__(self, event: Any, lane: Lane, spare: list[Any]) -> None:
        self.event = event
        self.lane = lane
        self._spare = spare
        lane.newest += 1
        self._number = lane.newest

    def is_here(self) -> bool:
        """See `Mark`; what lies before a mark that was reached has been reached."""
        lane = self.lane
        if self._number <= lane.reached:
            return True
        try:
            is_here = not is_capturing() and self.event.query()
        except RuntimeError:  # a device that has failed: the program will hear of it
            pass_on()
            return False
        if is_here:
            lane.reached = max(lane.reached, self._number)
        return bool(is_here)

    def __del__(self) -> None:
        self._spare.append(self.event)


class Marks:
    """Sets them."""

    def __init__(self, owned: Owned, kind: object) -> None:
        """Prepare.

        Args:
            kind: The class of the events.
        """
        self._owned = owned
        self._spare: dict[int, list[Any]] = pool_of(("events", kind), dict)
        self._made: dict[int, int] = pool_of(("made", kind), dict)
        self._lanes: dict[tuple[int, int], Lane] = {}

    def has_room(self, device: int) -> bool:
        """Whether there may be another mark of a device's."""
        return bool(self._spare.get(device)) or self._made.get(device, 0) < _MOST

    def set(self, cuda: Any, device: int) -> EventMark | None:
        """Mark this thread's place in a device's queue; None where there are too many.

        Raises:
            RuntimeError: The device has failed.
        """
        stream = cuda.current_stream(device)
        key = device, number_of(stream)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(device)
        spare = self._spare.setdefault(device, [])
        try:
            event = spare.pop()
        except IndexError:
            if self._made.get(device, 0) >= _MOST:
                return None
            self._made[device] = self._made.get(device, 0) + 1
            event = cuda.Event(enable_timing=True)
            self._owned.keep(event)
        try:
            event.record(stream)
        except RuntimeError:
            spare.append(event)
            raise
        return EventMark(event, lane, spare)


class Seconds:
    """The time between two marks of a device."""

    def __init__(self, first: EventMark, last: EventMark) -> None:
        self._first = first
        self._last = last

    def is_here(self) -> bool:
        """See `PendingNumber`; the first may lie in another queue than the last."""
        return self._last.is_here() and self._first.is_here()

    def value(self) -> float:
        """See `PendingNumber`; NULL where the device does not tell."""
        try:
            return float(self._first.event.elapsed_time(self._last.event)) * _MS
        except (RuntimeError, ValueError):
            pass_on()
            return NULL_FLOAT
