"""The rows of python.alloc_events and python.alloc_blocks.

Rules of this file: pure functions of a recording; no recording, no rows.
"""

from __future__ import annotations

from ..messages.common import LiveRows
from ..tables import ALLOC_ACTIONS, ALLOC_BLOCKS, ALLOC_EVENTS, CATEGORIES
from .history import Allocation, frame_text, history_of, user_frame
from .recording import EXISTING, Recording, Stack

Value = str | int | float | bool | None
_NONE = "nothing has been recorded yet: `memory --record on` or `memory --snapshot FILE` does"


def event_rows(recording: Recording | None) -> LiveRows:
    """Every event, in the order of time."""
    if recording is None:
        return LiveRows.of(ALLOC_EVENTS, (), _NONE)
    texts = _Texts()
    rows = [
        (
            recording.step_at(event.time_ns),
            event.time_ns,
            event.action if event.action in ALLOC_ACTIONS else None,
            event.address,
            event.bytes,
            recording.devices[event.device],
            _stream(recording, event.device, event.stream),
            event.module,
            *texts.of(event.stack),
            event.category if event.category in CATEGORIES else None,
        )
        for event in recording.events
        if event.action != EXISTING
    ]
    return LiveRows.of(ALLOC_EVENTS, rows, recording.cut)


def block_rows(recording: Recording | None) -> LiveRows:
    """What was in use at the end, the largest first."""
    if recording is None:
        return LiveRows.of(ALLOC_BLOCKS, (), _NONE)
    texts = _Texts()
    last = recording.marks[-1][0] if recording.marks else None
    live = [
        one
        for device in range(len(recording.devices))
        for one in history_of(recording, device).allocations
        if one.end is None
    ]
    live.sort(key=lambda one: -one.event.bytes)
    rows = [_block(one, recording, texts, last) for one in live]
    return LiveRows.of(ALLOC_BLOCKS, rows, recording.cut)


def _block(
    one: Allocation, recording: Recording, texts: _Texts, last: int | None
) -> tuple[Value, ...]:
    """One row."""
    event = one.event
    time_ns = None if one.is_older else event.time_ns
    step = recording.step_at(time_ns)
    return (
        event.address,
        event.bytes,
        recording.devices[event.device],
        _stream(recording, event.device, event.stream),
        event.category if event.category in CATEGORIES else None,
        event.module,
        step,
        None if step is None or last is None else last - step,
        time_ns,
        *texts.of(event.stack),
    )


class _Texts:
    """The texts of stacks, each made once."""

    def __init__(self) -> None:
        self._known: dict[Stack, tuple[str | None, str | None]] = {(): (None, None)}

    def of(self, stack: Stack) -> tuple[str | None, str | None]:
        """The program's innermost frame, and all frames."""
        known = self._known.get(stack)
        if known is None:
            frame = user_frame(stack)
            whole = "\n".join(frame_text(one) for one in stack)
            known = self._known[stack] = (None if frame is None else frame_text(frame), whole)
        return known


def _stream(recording: Recording, device: int, stream: int) -> int | None:
    """An accelerator's stream; the CPU has none."""
    return None if recording.devices[device] == "cpu" else stream
