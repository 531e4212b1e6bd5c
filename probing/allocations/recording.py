"""The records of a recording, and the file that an agent wrote.

Rules of this file: a file that is cut short or holds anything unexpected is one sentence.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from dataclasses import field
from typing import Any, NamedTuple

from ..errors import InternalError
from ..linux.foreign_files import unzipped
from ..messages.frozen import InNotebooks, dataclass
from ..messages.limits import LARGE_ANSWER_BYTES

EXISTING = "existing"
"""The action of a block that was there before the recording."""


class Frame(NamedTuple):
    """One frame of a stack."""

    file: str
    line: int
    name: str


Stack = tuple[Frame, ...]
"""Frames, the innermost first; none where no stack is known."""


class Event(NamedTuple):
    """One thing that an allocator did.

    Attributes:
        device: The number of its device.
        time_ns: None in a snapshot that does not say.
        device_free: What the device had free as memory ran out; None where that is not told.
    """

    action: str
    address: int
    bytes: int
    device: int
    stream: int
    time_ns: int | None
    stack: Stack
    module: str | None = None
    category: str | None = None
    device_free: int | None = None


class Block(NamedTuple):
    """A part of a segment."""

    address: int
    bytes: int
    requested: int
    state: str
    stack: Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Memory that an allocator has from the driver.

    Attributes:
        facts: What else torch says of it.
    """

    address: int
    bytes: int
    device: int
    stream: int
    blocks: tuple[Block, ...]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording(InNotebooks):
    """What an allocator did for some time.

    Attributes:
        how: ``profiler`` for memory of the CPU, ``allocator`` for that of an accelerator, ``file``
            where it is not known who has recorded it.
        devices: The devices, in the order of their numbers.
        marks: Steps and the times at which they began, in nanoseconds since the epoch.
        events: In the order of time, those of `EXISTING` blocks first.
        segments: At the end; empty where the allocator has none.
        happened: How many events there were, those that were not kept among them.
        pid: The process; None where that is not known.
        step_s: What a recorded step took, on average; None where that is not known.
        plain_step_s: What a step before took.
        note: What was not recorded, and why.
    """

    how: str
    devices: tuple[str, ...]
    marks: tuple[tuple[int, int], ...] = ()
    events: tuple[Event, ...]
    segments: tuple[Segment, ...] = ()
    happened: int
    pid: int | None = None
    step_s: float | None = None
    plain_step_s: float | None = None
    note: str | None = None

    def step_at(self, time_ns: int | None) -> int | None:
        """The step that was in progress at a time, so far as it is known."""
        if time_ns is None or not self.marks:
            return None
        at = bisect_right(self.marks, time_ns, key=lambda mark: mark[1])
        return self.marks[at - 1][0] if at else None

    @property
    def kept(self) -> int:
        """How many events are kept."""
        return sum(event.action != EXISTING for event in self.events)

    @property
    def cut(self) -> str | None:
        """What was not recorded or not kept, in a sentence; None where all was."""
        notes = [self.note] if self.note else []
        if self.happened > self.kept:
            notes.append(f"the newest {self.kept:,} of {self.happened:,} events are kept")
        return "; ".join(notes) or None


def read_recording(data: bytes) -> Recording:
    """A recording from an agent's file.

    Raises:
        InternalError: It cannot be read.
    """
    try:
        return _Reading().read(unzipped(data, LARGE_ANSWER_BYTES))
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, IndexError) as error:
        raise InternalError(f"the recording of allocations cannot be read: {error}") from None


class _Reading:
    """Reads the lines of a file."""

    def __init__(self) -> None:
        self._stacks: list[Stack] = []
        self._nodes: list[tuple[int, Frame]] = []
        self._events: list[Event] = []
        self._segments: list[Segment] = []

    def read(self, data: bytes) -> Recording:
        """All lines."""
        head: dict[str, Any] = {}
        last = None
        for line in data.splitlines():
            last, value = json.loads(line)
            if last == "head":
                head = value
            elif last == "stacks":
                self._nodes += [(row[0], Frame(*row[1:])) for row in value]
            elif last == "events":
                self._events += [self._event(row) for row in value]
            elif last == "segments":
                self._segments += [self._segment(row) for row in value]
        if last != "end":
            raise ValueError("it breaks off")
        return Recording(
            how=head["how"],
            devices=tuple(head["devices"]),
            marks=tuple([(step, time_ns) for step, time_ns in head["marks"]]),
            events=tuple(self._events),
            segments=tuple(self._segments),
            happened=head["events"],
            pid=head["pid"],
            step_s=head["step_s"],
            plain_step_s=head["plain_step_s"],
            note=head["note"],
        )

    def _event(self, row: list[Any]) -> Event:
        action, address, size, device, stream, time_ns, stack, *more = row
        place = self._stack(stack)
        return Event(action, address, size, device, stream, time_ns, place, *more)

    def _segment(self, row: dict[str, Any]) -> Segment:
        own = {"address", "total_size", "device", "stream", "blocks"}
        blocks, at = [], row["address"]
        for block in row["blocks"]:
            size = block["size"]
            requested = block.get("requested_size") or size
            stack = self._stack(block["stack"])
            blocks.append(Block(at, size, requested, block["state"], stack))
            at += size
        return Segment(
            address=row["address"],
            bytes=row["total_size"],
            device=row["device"],
            stream=row["stream"],
            blocks=tuple(blocks),
            facts={key: value for key, value in row.items() if key not in own},
        )

    def _stack(self, number: int) -> Stack:
        """The frames from an innermost one outwards; each stack is made once."""
        while len(self._stacks) < len(self._nodes):
            parent, frame = self._nodes[len(self._stacks)]
            around = self._stacks[parent] if parent >= 0 else ()
            self._stacks.append((frame, *around))
        return self._stacks[number] if number >= 0 else ()
