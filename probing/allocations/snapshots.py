"""Snapshots in torch's own format, which https://pytorch.org/memory_viz opens.

Rules of this file: a pickle is read as data and never as code: one that names any class or
function is refused before anything of it is made, and nothing that it says is believed unseen. What
is written is of protocol 4 and holds plain containers, texts and numbers only, since the page knows
no other.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterable
from typing import Any

from ..errors import UsageError
from .recording import EXISTING, Block, Event, Frame, Recording, Segment, Stack

UNKNOWN = "unknown"
"""The word for a category that is not known; the page wants one of that name."""
_PROTOCOL = 4
_GAP_BYTES = 64 << 20
"""Memory of the CPU that lies further apart is drawn as different segments."""


def write_snapshot(recording: Recording) -> bytes:
    """A recording as the bytes of a snapshot."""
    return pickle.dumps(_plain(recording), protocol=_PROTOCOL)


def read_snapshot(data: bytes) -> Recording:
    """A recording from a snapshot, whoever has made it.

    Raises:
        UsageError: It is none, or holds more than data.
    """
    try:
        plain = _Data(io.BytesIO(data)).load()
    except _HoldsCodeError as error:
        raise UsageError(
            f"the file is not opened: it would run {error} as it is read, which no snapshot does.",
            help="Have it made anew: `memory --snapshot`, or torch.cuda.memory._dump_snapshot().",
        ) from None
    except Exception:  # noqa: BLE001 - what a broken pickle raises is no fixed set
        raise _not_one() from None
    try:
        return _recording(plain)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise _not_one() from None


class _HoldsCodeError(Exception):
    """A pickle names a class or a function."""


class _Data(pickle.Unpickler):
    """Reads containers, texts and numbers."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Nothing is looked up."""
        raise _HoldsCodeError(f"{module_name}.{global_name}"[:100])

    def persistent_load(self, pid: Any) -> Any:
        """Nothing is fetched from elsewhere."""
        raise _HoldsCodeError("something that lies elsewhere")


def _not_one() -> UsageError:
    return UsageError(
        "the file is not a memory snapshot.",
        help="`probing PID memory --snapshot FILE` and torch.cuda.memory._dump_snapshot() make"
        " one.",
    )


def _recording(plain: Any) -> Recording:
    """A snapshot as records; every value is looked at as it is taken over."""
    own = plain.get("probing") or {}
    reading = _Reading()
    traces = plain["device_traces"]
    events = [
        reading.event(entry, number) for number, trace in enumerate(traces) for entry in trace
    ]
    if len(traces) > 1:
        events.sort(key=lambda event: event.time_ns or 0)
    there = [reading.event({**entry, "action": EXISTING}, 0) for entry in own.get("existing", ())]
    names = [_text(name) for name in own.get("devices", ())]
    devices = [*names, *(f"cuda:{number}" for number in range(len(names), len(traces)))]
    return Recording(
        how=_text(own.get("how", "file")),
        devices=tuple(devices),
        marks=tuple([(int(step), int(time_ns)) for step, time_ns in own.get("marks", ())]),
        events=(*there, *events),
        segments=tuple([reading.segment(segment) for segment in plain["segments"]]),
        happened=max(int(own.get("happened", 0)), len(events)),
        pid=_number(own.get("pid")),
        step_s=_seconds(own.get("step_s")),
        plain_step_s=_seconds(own.get("plain_step_s")),
        note=None if own.get("note") is None else _text(own["note"]),
    )


class _Reading:
    """Takes over the parts of a snapshot; equal stacks are kept once."""

    def __init__(self) -> None:
        self._stacks: dict[Stack, Stack] = {}
        self._frames: dict[Frame, Frame] = {}

    def event(self, entry: dict[str, Any], device: int) -> Event:
        """One event."""
        time_us = _number(entry.get("time_us"))
        category = entry.get("category")
        return Event(
            action=_text(entry["action"]),
            address=int(entry.get("addr") or 0),
            bytes=int(entry.get("size") or 0),
            device=device,
            stream=int(entry.get("stream") or 0),
            time_ns=None if time_us is None else time_us * 1000,
            stack=self._stack(entry.get("frames") or ()),
            module=None if entry.get("module") is None else _text(entry["module"]),
            category=None if category in (None, UNKNOWN) else _text(category),
            device_free=_number(entry.get("device_free")),
        )

    def segment(self, entry: dict[str, Any]) -> Segment:
        """One segment."""
        at = int(entry["address"])
        blocks = []
        for block in entry["blocks"]:
            size = int(block["size"])
            requested = int(block.get("requested_size") or size)
            stack = self._stack(block.get("frames") or ())
            blocks.append(Block(at, size, requested, _text(block["state"]), stack))
            at += size
        facts = {key: entry[key] for key in ("segment_type",) if key in entry}
        return Segment(
            address=int(entry["address"]),
            bytes=int(entry["total_size"]),
            device=int(entry.get("device") or 0),
            stream=int(entry.get("stream") or 0),
            blocks=tuple(blocks),
            facts=facts,
        )

    def _stack(self, frames: Iterable[dict[str, Any]]) -> Stack:
        found = []
        for frame in frames:
            one = Frame(_text(frame["filename"]), int(frame["line"]), _text(frame["name"]))
            found.append(self._frames.setdefault(one, one))
        stack = tuple(found)
        return self._stacks.setdefault(stack, stack)


def _text(value: Any) -> str:
    """A text.

    Raises:
        TypeError: It is none.
    """
    if type(value) is not str:
        raise TypeError(value)
    return value


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _plain(recording: Recording) -> dict[str, Any]:
    """The snapshot as torch would have made it, with what it has no place for under `probing`."""
    writing = _Writing()
    traces: list[list[dict[str, Any]]] = [[] for _ in recording.devices]
    there: list[dict[str, Any]] = []
    for event in recording.events:
        entry = writing.event(event, is_cpu=recording.how == "profiler")
        (there if event.action == EXISTING else traces[event.device]).append(entry)
    segments = recording.segments or tuple(_segments(recording))
    return {
        "device_traces": traces,
        "segments": [writing.segment(segment) for segment in segments],
        "probing": {
            "how": recording.how,
            "devices": list(recording.devices),
            "marks": [list(mark) for mark in recording.marks],
            "happened": recording.happened,
            "pid": recording.pid,
            "step_s": recording.step_s,
            "plain_step_s": recording.plain_step_s,
            "note": recording.note,
            "existing": there,
        },
    }


class _Writing:
    """Makes the parts of a snapshot; a frame and a stack that come again are the same object."""

    def __init__(self) -> None:
        self._frames: dict[Frame, dict[str, Any]] = {}
        self._stacks: dict[Stack, list[dict[str, Any]]] = {}

    def event(self, event: Event, *, is_cpu: bool) -> dict[str, Any]:
        """One event."""
        entry: dict[str, Any] = {
            "action": event.action,
            "addr": event.address,
            "size": event.bytes,
            "stream": event.stream,
            "frames": self._stack(event.stack),
        }
        if event.device_free is not None:
            entry["device_free"] = event.device_free
        if event.time_ns is not None:
            entry["time_us"] = event.time_ns // 1000
        if event.module is not None:
            entry["module"] = event.module
        if is_cpu:  # the page colours by category where there is any, and then wants one each
            entry["category"] = event.category or UNKNOWN
        return entry

    def segment(self, segment: Segment) -> dict[str, Any]:
        """One segment."""
        active = [b for b in segment.blocks if b.state.startswith("active")]
        allocated = [b for b in active if b.state == "active_allocated"]
        return {
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            **segment.facts,
            "device": segment.device,
            "address": segment.address,
            "total_size": segment.bytes,
            "allocated_size": sum(block.bytes for block in allocated),
            "requested_size": sum(block.requested for block in active),
            "active_size": sum(block.bytes for block in active),
            "stream": segment.stream,
            "frames": [],
            "blocks": [self._block(block) for block in segment.blocks],
        }

    def _block(self, block: Block) -> dict[str, Any]:
        return {
            "address": block.address,
            "size": block.bytes,
            "requested_size": block.requested,
            "state": block.state,
            "frames": self._stack(block.stack),
        }

    def _stack(self, stack: Stack) -> list[dict[str, Any]]:
        known = self._stacks.get(stack)
        if known is None:
            known = self._stacks[stack] = [self._frame(frame) for frame in stack]
        return known

    def _frame(self, frame: Frame) -> dict[str, Any]:
        known = self._frames.get(frame)
        if known is None:
            known = {"filename": frame.file, "line": frame.line, "name": frame.name}
            self._frames[frame] = known
        return known


def _segments(recording: Recording) -> Iterable[Segment]:
    """The memory of the CPU as segments: each covers addresses that lie close together."""
    live: dict[int, Event] = {}
    ranges = sorted({(e.address, e.address + e.bytes) for e in recording.events if e.address})
    for event in recording.events:
        if event.action in {"alloc", EXISTING}:
            live[event.address] = event
        elif event.action == "free_completed":
            live.pop(event.address, None)
    blocks = sorted(live.values(), key=lambda event: event.address)
    at = 0
    for begin, end in _spans(ranges):
        first = at
        while at < len(blocks) and blocks[at].address < end:
            at += 1
        mine = tuple(_filled(begin, end, blocks[first:at]))
        yield Segment(address=begin, bytes=end - begin, device=0, stream=0, blocks=mine)


def _spans(ranges: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Ranges of addresses, those together that lie close."""
    begin, end = None, 0
    for first, last in ranges:
        if begin is None or first > end + _GAP_BYTES:
            if begin is not None:
                yield begin, end
            begin = first
        end = max(end, last)
    if begin is not None:
        yield begin, end


def _filled(begin: int, end: int, events: list[Event]) -> Iterable[Block]:
    """The blocks of a segment, the unused places between them among them."""
    at = begin
    for event in events:
        if event.address < at:  # it overlaps one that was freed unseen, since the last step's end
            continue
        if event.address > at:
            yield Block(at, event.address - at, event.address - at, "inactive", ())
        yield Block(event.address, event.bytes, event.bytes, "active_allocated", event.stack)
        at = event.address + event.bytes
    if at < end:
        yield Block(at, end - at, end - at, "inactive", ())
