"""The file that a recording of allocations becomes: lines of JSON, gzipped, in the run folder.

Rules of this file: written a few hundred lines at a time, with a pause after each lot, since
whatever holds the interpreter lock holds up the training; a pickle of a hundred thousand events
would do so for as long as it takes. `probing.allocations` reads it and makes the pickle, at the
operator's side. The file takes its name only when it is whole and on the disk.
"""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

EXISTING = "existing"
"""The action of a block that was there before the recording."""
_LOT = 200
_PAUSE_S = 0.001

Stack = tuple[int, str, int, str]
"""A frame as a node of the tree of stacks: the number of its caller's, or -1; file, line, name."""


class AllocationEvent(NamedTuple):
    """One thing that the allocator did.

    Attributes:
        action: The word that torch's own snapshots have for it, or `EXISTING`.
        device: The number of its device in the head.
        stack: The number of its innermost frame; -1 where no stack is known.
        module: The module it was done for; None where that is not known.
        category: What the memory was for; None where that is not known.
        device_free: What the device had free as memory ran out; None of any other event.
    """

    action: str
    address: int
    bytes: int
    device: int
    stream: int
    time_ns: int
    stack: int
    module: str | None = None
    category: str | None = None
    device_free: int | None = None


class AllocationHead(NamedTuple):
    """What is said of a recording as a whole.

    Attributes:
        how: ``profiler`` or ``allocator``.
        devices: The devices, in the order of their numbers.
        marks: Steps and the times at which they began; the last one ended the recording.
        entries: How many events were to be kept.
        step_s: What a recorded step took, on average; None where that is not known.
        plain_step_s: What a step before took.
        note: What was not recorded, and why.
    """

    how: str
    devices: tuple[str, ...]
    marks: tuple[tuple[int, int], ...]
    entries: int = 0
    step_s: float | None = None
    plain_step_s: float | None = None
    note: str | None = None


def write_allocations(
    path: Path,
    head: AllocationHead,
    stacks: Sequence[Stack],
    events: Sequence[AllocationEvent],
    segments: Sequence[object] = (),
) -> None:
    """Write a recording in place of the one before: what there was, and the newest events."""
    there = [event for event in events if event.action == EXISTING]
    happened = [event for event in events if event.action != EXISTING]
    kept = happened[max(0, len(happened) - head.entries) :]
    packed = path.with_name(f"{path.name}.{threading.get_ident()}")  # several may be asked for
    begin = {**head._asdict(), "pid": os.getpid(), "events": len(happened)}
    parts = (("stacks", stacks), ("events", there), ("events", kept), ("segments", segments))
    try:
        with (
            packed.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) as out,
        ):
            out.write(_line("head", begin))
            for kind, things in parts:
                for lot in _lots(things):
                    out.write(_line(kind, lot))
                    time.sleep(_PAUSE_S)
            out.write(_line("end", None))
            out.close()
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(packed, path)
    finally:
        packed.unlink(missing_ok=True)


def _lots(things: Iterable[object]) -> Iterator[list[Any]]:
    """Some at a time."""
    left = iter(things)
    while lot := list(islice(left, _LOT)):
        yield lot


def _line(kind: str, value: object) -> bytes:
    return json.dumps([kind, value], separators=(",", ":")).encode() + b"\n"
