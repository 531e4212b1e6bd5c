"""The lines of the program that made the memory which is in use.

Rules of this file: runs in the agent's threads; reads what a recording has kept, never a tensor.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....allocations.history import frame_text, user_frame
from ....allocations.recording import Frame
from ...on_demand.allocation_file import Stack

if TYPE_CHECKING:
    from ..storage.memory_look import Moment

_LOT = 200
_PAUSE_S = 0.001


def frames_of(stacks: Sequence[Stack], wanted: Mapping[int, int]) -> dict[int, str]:
    """The program's innermost frame of each piece of memory, as text.

    Args:
        stacks: The frames, each with the number of its caller's.
        wanted: By address, the number of a stack's innermost frame; -1 where none is known.
    """
    known: dict[int, str | None] = {-1: None}
    for number in set(wanted.values()) - {-1}:
        known[number] = _text(_chain(stacks, number))
    found = {address: known[number] for address, number in wanted.items()}
    return {address: text for address, text in found.items() if text is not None}


def with_frames(moments: Sequence[Moment], snapshot: Mapping[str, object]) -> list[Moment]:
    """The same moments, with the lines that made what lay on the accelerator."""
    found = frames_at(snapshot, [moment.time_ns for moment in moments])
    return [
        moment._replace(
            storages=tuple(
                [
                    one._replace(frame=frames.get((one.device, one.address), one.frame))
                    for one in moment.storages
                ]
            )
        )
        for moment, frames in zip(moments, found, strict=True)
    ]


def frames_at(
    snapshot: Mapping[str, Any], moments: Iterable[int]
) -> list[dict[tuple[str, int], str]]:
    """What an accelerator's history tells of the memory in use at some moments, by its place.

    Args:
        snapshot: As torch gives it, taken after them.
        moments: Times since the epoch, in nanoseconds.
    """
    ends = [moment // 1000 for moment in moments]
    stacks: list[dict[tuple[str, int], Any]] = [{} for _ in ends]
    count = 0
    for number, trace in enumerate(snapshot.get("device_traces", ())):
        device = f"cuda:{number}"
        for entry in trace:
            count += 1
            if count % _LOT == 0:
                time.sleep(_PAUSE_S)
            if entry["action"] != "alloc":
                continue
            for end, found in zip(ends, stacks, strict=True):
                if (entry.get("time_us") or 0) <= end:
                    found[device, entry["addr"]] = entry.get("frames")
    return [_texts(found) for found in stacks]


def _texts(stacks: Mapping[tuple[str, int], Any]) -> dict[tuple[str, int], str]:
    known: dict[int, str | None] = {}
    texts: dict[tuple[str, int], str] = {}
    for place, frames in stacks.items():
        if id(frames) not in known:  # they are alive as long as the stacks are
            known[id(frames)] = _text([_frame(frame) for frame in frames or ()])
        text = known[id(frames)]
        if text is not None:
            texts[place] = text
    return texts


def _frame(frame: Mapping[str, Any]) -> Frame:
    return Frame(frame["filename"], int(frame["line"]), frame["name"])


def _chain(stacks: Sequence[Stack], number: int) -> list[Frame]:
    """A stack, the innermost frame first."""
    frames = []
    while number >= 0:
        number, file, line, name = stacks[number]
        frames.append(Frame(file, line, name))
    return frames


def _text(stack: list[Frame]) -> str | None:
    frame = user_frame(tuple(stack))
    return None if frame is None else frame_text(frame)
