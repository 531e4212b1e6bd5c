"""Every allocation on the accelerator, as its own allocator keeps the history.

Rules of this file: runs in the agent's threads, but for `step_ended`. The history is bounded by the
allocator itself, so that it may stay on. A history that the program has turned on is its own: it is
read, and neither changed nor ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...on_demand.allocation_file import AllocationEvent, AllocationHead, Stack, write_allocations
from ..accelerator import CudaHistory

_LOT = 200
_PAUSE_S = 0.001
_MOST_FRAMES = 64
_MOST_MARKS = 10_000


class DeviceHistory:
    """The allocator's history, on or off.

    Attributes:
        is_on: Whether we have turned it on.
    """

    how = "allocator"

    def __init__(self, keeper: CudaHistory, step: Callable[[], int | None]) -> None:
        self.is_on = False
        self.entries = 0
        self._keeper = keeper
        self._step = step
        self._marks: deque[tuple[int, int]] = deque(maxlen=_MOST_MARKS)

    def start(self, entries: int) -> None:
        """Keep a history of so many events from now on."""
        if not self.is_on and not self._keeper.has_history():
            self._keeper.start_history(entries)
            self.is_on, self.entries = True, entries
        self._marks.clear()
        self._mark()

    def stop(self) -> None:
        """Keep none any more, unless it is the program's."""
        if self.is_on:
            self.is_on = False
            self._keeper.stop_history()

    def step_ended(self) -> bool:
        """See `StepEndJob`: note when the step began."""
        self._mark()
        return not self.is_on

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""

    def save(self, path: Path) -> None:
        """Write what the allocator has now."""
        self._mark()
        snapshot = self._keeper.history()
        found = _Converter()
        events = found.events(snapshot.pop("device_traces", []))
        segments = found.segments(snapshot.pop("segments", []))
        head = AllocationHead(
            how=self.how,
            devices=tuple([f"cuda:{number}" for number in range(found.devices)]),
            marks=tuple(self._marks),
            entries=self.entries or len(events),
        )
        write_allocations(path, head, found.stacks, events, segments)

    def _mark(self) -> None:
        step = self._step()
        if step is not None:
            self._marks.append((step, time.time_ns()))


class _Converter:
    """A snapshot of torch's as rows, its stacks kept once."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = []
        self.devices = 0
        self._numbers: dict[Stack, int] = {}
        self._count = 0

    def events(self, traces: list[list[dict[str, object]]]) -> list[AllocationEvent]:
        """What happened on each device, in the order of time."""
        self.devices = len(traces)
        found = [
            self._event(number, entry) for number, trace in enumerate(traces) for entry in trace
        ]
        return sorted(found, key=lambda event: event.time_ns) if len(traces) > 1 else found

    def segments(self, segments: list[dict[str, object]]) -> list[dict[str, Any]]:
        """What the allocator holds, each block with the number of its stack."""
        return [self._segment(segment) for segment in segments]

    def _segment(self, segment: dict[str, Any]) -> dict[str, Any]:
        blocks = []
        for block in segment["blocks"]:
            self._pause()
            plain = {key: value for key, value in block.items() if _is_plain(value)}
            blocks.append({**plain, "stack": self._stack(block.get("frames") or ())})
        plain = {key: value for key, value in segment.items() if _is_plain(value)}
        return {**plain, "blocks": blocks}

    def _event(self, device: int, entry: dict[str, Any]) -> AllocationEvent:
        self._pause()
        return AllocationEvent(
            action=entry["action"],
            address=entry.get("addr") or 0,
            bytes=entry.get("size") or 0,
            device=device,
            stream=entry.get("stream") or 0,
            time_ns=(entry.get("time_us") or 0) * 1000,
            stack=self._stack(entry.get("frames") or ()),
            device_free=entry.get("device_free"),
        )

    def _stack(self, frames: Any) -> int:
        """The number of a stack's innermost frame."""
        number = -1
        for frame in reversed(frames[:_MOST_FRAMES]):
            node = (number, frame["filename"], int(frame["line"]), frame["name"])
            known = self._numbers.get(node)
            if known is None:
                known = self._numbers[node] = len(self.stacks)
                self.stacks.append(node)
            number = known
        return number

    def _pause(self) -> None:
        """Let the training have the interpreter lock."""
        self._count += 1
        if self._count % _LOT == 0:
            time.sleep(_PAUSE_S)


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | tuple) or value is None
