"""Two recordings side by side.

Rules of this file: pure functions of two recordings. Lines move as a program is edited, so places
are compared by file and function.
"""

from __future__ import annotations

from ..messages.frozen import dataclass
from .history import UNKNOWN_SITE, UNSEEN_SITE, History, history_of, user_frame
from .recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The bytes of one place or category, at the peak and at the end; in both recordings.

    Attributes:
        peaks: At the peak of each.
        lasts: At the end of each.
    """

    name: str
    peaks: tuple[int, int]
    lasts: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs between two recordings.

    Attributes:
        steps: How many steps each covers; None where that is not known.
        peaks: The peak of each.
        lows: What was least in use in each.
        categories: The largest change first.
        sites: The same.
    """

    steps: tuple[int | None, int | None]
    peaks: tuple[int, int]
    lows: tuple[int, int]
    categories: tuple[Change, ...]
    sites: tuple[Change, ...]


def shared_devices(one: Recording, other: Recording) -> tuple[tuple[str, int, int], ...]:
    """The devices that were used in either, with their number in each.

    Two recordings that name none alike, such as one of the CPU and one of an accelerator, are
    compared by their first ones.
    """
    used = [{event.device for event in recording.events} for recording in (one, other)]
    both = tuple(
        [
            (name, at, other.devices.index(name))
            for at, name in enumerate(one.devices)
            if name in other.devices and (at in used[0] or other.devices.index(name) in used[1])
        ]
    )
    return both or ((one.devices[0], 0, 0),)


def compare(one: Recording, other: Recording, devices: tuple[int, int] = (0, 0)) -> Difference:
    """What differs on one device of each.

    Args:
        devices: The number of the device in each.
    """
    both = (history_of(one, devices[0]), history_of(other, devices[1]))
    return Difference(
        steps=(_steps(one), _steps(other)),
        peaks=(both[0].peak_bytes, both[1].peak_bytes),
        lows=(_low(both[0]), _low(both[1])),
        categories=_changes(tuple([_by_category(h) for h in both])),
        sites=_changes(tuple([_by_site(h) for h in both])),
    )


def _steps(recording: Recording) -> int | None:
    return len(recording.marks) - 1 if recording.marks else None


def _low(history: History) -> int:
    """What was least in use."""
    changes = [0] * (history.events + 1)
    for one in history.allocations:
        changes[one.start] += one.event.bytes
        if one.end is not None:
            changes[one.end] -= one.event.bytes
    level, least = 0, None
    for change in changes:
        level += change
        least = level if least is None else min(least, level)
    return least or 0


Sums = dict[str, tuple[int, int]]


def _by_category(history: History) -> Sums:
    return _sums(history, [one.event.category or "unknown" for one in history.allocations])


def _by_site(history: History) -> Sums:
    return _sums(history, [_place(history, number) for number in range(len(history.allocations))])


def _place(history: History, number: int) -> str:
    """File and function, without the line."""
    one = history.allocations[number]
    frame = user_frame(one.event.stack)
    if frame is None:
        return UNKNOWN_SITE if one.is_older else UNSEEN_SITE
    return f"{frame.file} {frame.name}"


def _sums(history: History, names: list[str]) -> Sums:
    """Bytes at the peak and at the end, by name."""
    sums: Sums = {}
    for name, one in zip(names, history.allocations, strict=True):
        peak, last = sums.get(name, (0, 0))
        size = one.event.bytes
        at_peak = size if history.is_live_at(one, history.peak_at) else 0
        sums[name] = (peak + at_peak, last + (size if one.end is None else 0))
    return sums


def _changes(sums: tuple[Sums, ...]) -> tuple[Change, ...]:
    first, second = sums
    found = []
    for name in {**first, **second}:
        (peak, last), (other_peak, other_last) = first.get(name, (0, 0)), second.get(name, (0, 0))
        found.append(Change(name=name, peaks=(peak, other_peak), lasts=(last, other_last)))
    return tuple(sorted(found, key=lambda c: (-_size(c), -max(c.peaks), c.name)))


def _size(change: Change) -> int:
    """How large a difference is, at the peak or at the end."""
    return max(abs(change.peaks[1] - change.peaks[0]), abs(change.lasts[1] - change.lasts[0]))
