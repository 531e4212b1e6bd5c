"""Reads what torch.profiler saw of memory: events, stacks, and the modules they were for.

Rules of this file: runs in the agent's thread, a few events at a time, since the training wants
the interpreter lock. Only walks over what the profiler has kept, which is no tensor. A frame's
line is that of the call it was in; where an operator of Python's and no call made the allocation,
that of the function's head.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ....own_files import is_ours
from ...on_demand.allocation_file import EXISTING, AllocationEvent, Stack

_LOT = 200
_PAUSE_S = 0.001
_MOST_FRAMES = 64
_MEMORY = "[memory]"
_BACKWARD_SCOPE = 1


class Known(NamedTuple):
    """What is known of a storage that is alive.

    Attributes:
        identity: What tells it from another one at its place; None where that is not noted.
    """

    bytes: int
    category: str
    module: str | None
    identity: int | None = None


Census = dict[int, Known]
"""The storages alive at a moment, by their addresses."""


class _Place(NamedTuple):
    """Where in the tree an event is.

    Attributes:
        stack: The number of the innermost frame.
        depth: How many frames.
        module: The innermost module.
        is_backward: Whether a backward pass is under way.
        head: The function whose head stands for the innermost frame, until a call in it is seen.
    """

    stack: int = -1
    depth: int = 0
    module: str | None = None
    is_backward: bool = False
    head: Any = None


class _Seen(NamedTuple):
    """One event of memory."""

    time_ns: int
    address: int
    bytes: int
    stack: int
    module: str | None = None
    is_backward: bool = False


class AllocationTree:
    """The events of memory in a profile, with the stacks that made them.

    Args:
        modules: The names of modules, by identity.

    Attributes:
        stacks: The frames, each with the number of its caller's.
        open_stacks: What is still in use at the end: by address, the number of its stack.
    """

    def __init__(self, modules: dict[int, str]) -> None:
        self.stacks: list[Stack] = []
        self.open_stacks: dict[int, int] = {}
        self._modules = modules
        self._numbers: dict[Stack, int] = {}
        self._files: dict[str, str] = {}
        self._forward: dict[int, str | None] = {}
        self._seen: list[_Seen] = []

    def read(self, roots: Iterable[Any]) -> None:
        """Walk over the tree of a profile."""
        waiting = [(event, _Place()) for event in sorted(roots, key=_start, reverse=True)]
        count = 0
        while waiting:
            event, place = waiting.pop()
            count += 1
            if count % _LOT == 0:
                time.sleep(_PAUSE_S)
            if event.name == _MEMORY:
                self._take(event, place)
                continue
            children = event.children
            if children:
                place = self._inside(event, place)
                waiting += [(child, place) for child in reversed(children)]
        self._seen.sort(key=lambda seen: seen.time_ns)

    def events_with(self, censuses: Sequence[tuple[int, Census]]) -> list[AllocationEvent]:
        """The events in the order of time, with what the lists of living storages tell.

        What a list has and the profiler has not seen was made where it does not look; what a list
        has no more was freed unseen, as the profiler cannot tell blocks older than itself.
        """
        replay = _Replay(self._seen)
        events = replay.run(censuses)
        self.open_stacks = replay.open_stacks()
        return events

    def _inside(self, event: Any, place: _Place) -> _Place:
        """The place of what is inside an event."""
        facts = event.extra_fields
        caller = getattr(facts, "caller", None)
        if caller is not None:
            place = self._called(facts, caller, place)
        elif (number := getattr(facts, "sequence_number", -1)) is not None and number >= 0:
            if facts.scope == _BACKWARD_SCOPE:
                place = place._replace(is_backward=True, module=self._forward.get(number))
            elif not place.is_backward:
                self._forward[number] = place.module
        if event.name.startswith("autograd::engine"):
            place = place._replace(is_backward=True)
        return place

    def _called(self, facts: Any, caller: Any, place: _Place) -> _Place:
        """A call from one Python function, of another or of C code."""
        callee = getattr(facts, "callsite", None)
        if place.depth or not _is_same(callee, caller):  # a frame that was there before is its own
            place = self._pushed(caller, place._replace(head=None))
        module = getattr(facts, "module", None)
        if module is not None:
            known = self._modules.get(int(getattr(module, "self_ptr", None) or 0))
            place = place._replace(module=known or place.module)
        return place if callee is None else place._replace(head=callee)

    def _pushed(self, frame: Any, place: _Place) -> _Place:
        """One frame more, unless it is the agent's own or there are too many."""
        file = self._files.get(frame.file_name)
        if file is None:
            file = self._files[frame.file_name] = _whole(frame.file_name)
        if not file or place.depth >= _MOST_FRAMES:
            return place
        stack = (place.stack, file, int(frame.line_number), str(frame.function_name))
        number = self._numbers.get(stack)
        if number is None:
            number = self._numbers[stack] = len(self.stacks)
            self.stacks.append(stack)
        return place._replace(stack=number, depth=place.depth + 1)

    def _take(self, event: Any, place: _Place) -> None:
        """An event of memory on the CPU."""
        facts = event.extra_fields
        if facts.device.type != "cpu" or not facts.alloc_size:
            return
        if place.head is not None:
            place = self._pushed(place.head, place)
        at = (event.start_time_ns, facts.ptr, facts.alloc_size)
        self._seen.append(_Seen(*at, place.stack, place.module, place.is_backward))


class _Block:
    """A block that is in use, as the events are gone through."""

    __slots__ = ("at", "bytes", "category", "is_backward", "is_unseen", "module")

    def __init__(self, at: int, seen: _Seen, *, is_unseen: bool) -> None:
        self.at = at
        self.is_unseen = is_unseen
        self.bytes = seen.bytes
        self.category: str | None = None
        self.module = seen.module
        self.is_backward = seen.is_backward


class _Replay:
    """Goes through the events in the order of time, with the lists of living storages between."""

    def __init__(self, seen: Sequence[_Seen]) -> None:
        self._seen = seen
        self._events: list[AllocationEvent] = []
        self._open: dict[int, _Block] = {}
        self._is_under_way = False

    def run(self, censuses: Sequence[tuple[int, Census]]) -> list[AllocationEvent]:
        """All events."""
        at = 0
        times = [seen.time_ns for seen in self._seen]
        for time_ns, census in censuses:
            until = bisect_left(times, time_ns)
            self._go_on(at, until)
            at = until
            self._compare(time_ns, census)
        self._go_on(at, len(self._seen))
        for block in self._open.values():
            self._settle(block)
        return self._events

    def open_stacks(self) -> dict[int, int]:
        """Of each block that is in use, the number of the stack that made it; -1 of none."""
        return {address: self._events[block.at].stack for address, block in self._open.items()}

    def _go_on(self, first: int, last: int) -> None:
        """Some of the events."""
        for number in range(first, last):
            if number % _LOT == 0:
                time.sleep(_PAUSE_S)
            seen = self._seen[number]
            block = self._open.pop(seen.address, None)
            if seen.bytes > 0:
                if block is not None:  # it was freed unseen, and its place is used again
                    self._free(block, seen._replace(stack=-1))
                self._open[seen.address] = _Block(len(self._events), seen, is_unseen=False)
                self._add("alloc", seen, seen.bytes)
            elif block is not None:
                if block.category is None and seen.is_backward and not block.is_backward:
                    block.category = "activations"
                self._free(block, seen)

    def _compare(self, time_ns: int, census: Census) -> None:
        """What is alive by the list, against what is by the events."""
        action = "alloc" if self._is_under_way else EXISTING
        self._is_under_way = True
        for address, known in census.items():
            block = self._open.get(address)
            if block is None:
                seen = _Seen(time_ns, address, known.bytes, -1, known.module)
                block = _Block(len(self._events), seen, is_unseen=True)
                self._open[address] = block
                self._add(action, seen, known.bytes)
            block.category = known.category
            block.module = known.module or block.module
        for address in [a for a in self._open if a not in census and self._open[a].is_unseen]:
            self._free(self._open.pop(address), _Seen(time_ns, address, 0, -1))

    def _free(self, block: _Block, seen: _Seen) -> None:
        self._settle(block)
        for action in ("free_requested", "free_completed"):
            self._add(action, seen, block.bytes)

    def _add(self, action: str, seen: _Seen, size: int) -> None:
        at = (action, seen.address, size, 0, 0, seen.time_ns, seen.stack, seen.module)
        self._events.append(AllocationEvent(*at))

    def _settle(self, block: _Block) -> None:
        """Write down what has become known of a block since it was made."""
        known = self._events[block.at]._replace(category=block.category, module=block.module)
        self._events[block.at] = known


def _is_same(one: Any, other: Any) -> bool:
    return one is not None and (one.file_name, one.function_name) == (
        other.file_name,
        other.function_name,
    )


def _start(event: Any) -> int:
    start: int = event.start_time_ns
    return start


def _whole(name: str) -> str:
    """A file name with the folder that the profiler has cut off; empty for the agent's own."""
    if not os.path.isabs(name) and not name.startswith("<"):
        found = (os.path.join(folder, name) for folder in [*sys.path, os.getcwd()])
        name = next((path for path in found if os.path.isfile(path)), name)
    return "" if is_ours(os.path.realpath(name)) else name
