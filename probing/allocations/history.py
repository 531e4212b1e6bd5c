"""What became of each allocation, and the places in the program that made them.

Rules of this file: pure functions of a recording.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable
from typing import NamedTuple

from ..messages.frozen import dataclass
from .recording import EXISTING, Event, Frame, Recording, Stack

UNKNOWN_SITE = "(older than the recording)"
UNSEEN_SITE = "(no stack)"
_LIBRARIES = (
    "/site-packages/",
    "/dist-packages/",
    "/torch/nn/",
    "/torch/optim/",
    "/torch/autograd/",
    "/torch/utils/",
    "/torch/_",
)


class Allocation(NamedTuple):
    """One piece of memory, from when it was handed out until it was given back.

    Attributes:
        start: The number of the event before which it is in use; 0 for one older than all.
        end: The number of the event from which on it is not; None when it was in use at the end.
        event: What made it, or the first that is known of it.
        is_older: Whether it is older than the recording.
        freed_ns: When it was given back.
    """

    start: int
    end: int | None
    event: Event
    is_older: bool
    freed_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One place in the program.

    Attributes:
        frame: What it is called: `file:line function`.
        count: How often memory was handed out for it.
        bytes: How much in all.
        live_bytes: How much of that was in use at the end.
        peak_bytes: How much of that was in use at the peak of all.
        stack: One of the stacks that led there.
    """

    frame: str
    count: int
    bytes: int
    live_bytes: int
    peak_bytes: int
    stack: Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All of one device.

    Attributes:
        events: How many events there were.
        allocations: In the order in which they were made.
        first_bytes: In use as the recording began, so far as it is known.
        last_bytes: In use as it ended.
        peak_bytes: The most that was in use.
        peak_at: The number of the event after which it was.
        sites: The largest at the peak first.
    """

    device: int
    events: int
    allocations: tuple[Allocation, ...]
    first_bytes: int
    last_bytes: int
    peak_bytes: int
    peak_at: int
    sites: tuple[Site, ...]

    def is_live_at(self, allocation: Allocation, at: int) -> bool:
        """Whether it is in use after an event."""
        return allocation.start <= at and (allocation.end is None or at < allocation.end)


def history_of(recording: Recording, device: int) -> History:
    """The allocations of one device."""
    allocations, count = _pair(recording, device)
    changes = [0] * (count + 1)
    for one in allocations:
        changes[one.start] += one.event.bytes
        if one.end is not None:
            changes[one.end] -= one.event.bytes
    level, levels = 0, []
    for change in changes:
        level += change
        levels.append(level)
    peak_at = max(range(len(levels)), key=levels.__getitem__)
    return History(
        device=device,
        events=count,
        allocations=tuple(allocations),
        first_bytes=levels[0],
        last_bytes=levels[-1],
        peak_bytes=levels[peak_at],
        peak_at=peak_at,
        sites=_sites(allocations, peak_at),
    )


def site_of(stack: Stack, *, is_older: bool = False) -> str:
    """What the place is called that a stack led to."""
    frame = user_frame(stack)
    if frame is None:
        return UNKNOWN_SITE if is_older else UNSEEN_SITE
    return frame_text(frame)


def user_frame(stack: Stack) -> Frame | None:
    """The innermost frame of the program's own code; of a library where there is no such."""
    for frame in stack:
        if not _is_library(frame.file):
            return frame
    return stack[0] if stack else None


def frame_text(frame: Frame) -> str:
    """A frame as one line."""
    return f"{frame.file}:{frame.line} {frame.name}"


_STANDARD = sysconfig.get_path("stdlib") + os.sep


def _is_library(file: str) -> bool:
    """Whether a file is no part of the program: installed, of torch, or of the interpreter."""
    is_relative_torch = file.startswith(("torch/", "<"))
    return is_relative_torch or any(part in file for part in _LIBRARIES) or _is_standard(file)


def _is_standard(file: str) -> bool:
    """Whether a file belongs to a Python, that of this process or another."""
    return file.startswith(_STANDARD) or "/lib/python3" in file


def _pair(recording: Recording, device: int) -> tuple[list[Allocation], int]:
    """The allocations of a device, and how many events it has."""
    open_at: dict[int, int] = {}
    pieces: list[tuple[int, int | None, Event, bool, int | None]] = []
    count = 0
    for event in recording.events:
        if event.device != device:
            continue
        if event.action == EXISTING:
            open_at[event.address] = len(pieces)
            pieces.append((0, None, event, True, None))
            continue
        if event.action not in {"alloc", "free_completed", "free"}:
            continue
        count += 1
        if event.action == "alloc":
            before = open_at.pop(event.address, None)
            if before is not None:  # how it was given back is not among what was kept
                pieces[before] = (pieces[before][0], count, *pieces[before][2:4], event.time_ns)
            open_at[event.address] = len(pieces)
            pieces.append((count, None, event, False, None))
        elif (at := open_at.pop(event.address, None)) is not None:
            start, _, first, is_older, _ = pieces[at]
            pieces[at] = (start, count, first, is_older, event.time_ns)
        else:
            unknown = event._replace(stack=(), time_ns=None, module=None)
            pieces.append((0, count, unknown, True, event.time_ns))
    found = [Allocation(*piece) for piece in pieces]
    known = {found[at].event.address for at in open_at.values()}
    found += [one for one in _older(recording, device) if one.event.address not in known]
    return found, count


def _older(recording: Recording, device: int) -> Iterable[Allocation]:
    """The blocks in use at the end that no event tells of."""
    for segment in recording.segments:
        if segment.device == device:
            for block in segment.blocks:
                if block.state == "active_allocated":
                    at = (block.address, block.requested, device, segment.stream, None)
                    event = Event("alloc", *at, block.stack)
                    yield Allocation(start=0, end=None, event=event, is_older=True, freed_ns=None)


def _sites(allocations: list[Allocation], peak_at: int) -> tuple[Site, ...]:
    """The places, the largest at the peak first."""
    sums: dict[str, list[int]] = {}
    stacks: dict[str, Stack] = {}
    for one in allocations:
        name = site_of(one.event.stack, is_older=one.is_older)
        stacks.setdefault(name, one.event.stack)
        figures = sums.setdefault(name, [0, 0, 0, 0])
        size = one.event.bytes
        is_at_peak = one.start <= peak_at and (one.end is None or peak_at < one.end)
        figures[0] += 1
        figures[1] += size
        figures[2] += size if one.end is None else 0
        figures[3] += size if is_at_peak else 0
    found = [
        Site(
            frame=name,
            count=figures[0],
            bytes=figures[1],
            live_bytes=figures[2],
            peak_bytes=figures[3],
            stack=stacks[name],
        )
        for name, figures in sums.items()
    ]
    return tuple(sorted(found, key=lambda site: (-site.peak_bytes, -site.bytes, site.frame)))
