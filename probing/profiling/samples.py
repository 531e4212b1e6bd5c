"""Stacks with weights: what flame graphs and sampling profiles are made of.

Rules of this file: pure; a stack's outermost frame comes first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container
from typing import Literal

from ..messages.frozen import InNotebooks, dataclass
from .summary import short_name
from .trace import Event, Trace

_OWN_CODE = re.compile(r"/probing/(?:agent|safety|server)/")
_OWN_THREADS = "probing-"
"""How the names of the agent's own threads begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(InNotebooks):
    """Weighted stacks.

    Attributes:
        unit: What a weight counts: samples taken, or nanoseconds.
        stacks: Each with its weight.
        seconds: The time they are of.
        hz: How often samples were taken, if they were.
        idle: Whether threads that wait are in it.
        timeline: The stacks in the order of time, as a Chrome trace, in place of the weights.
    """

    unit: Literal["samples", "nanoseconds"]
    stacks: tuple[tuple[tuple[str, ...], int], ...]
    seconds: float
    hz: int | None = None
    idle: bool = False
    timeline: str | None = None

    @property
    def total(self) -> int:
        """The weight of all stacks."""
        return sum(weight for _, weight in self.stacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTime:
    """One function or line over all stacks.

    Attributes:
        own: The weight of the stacks that end in it.
        total: The weight of the stacks that it occurs in.
    """

    frame: str
    own: int
    total: int


def parse_folded(
    text: str, *, seconds: float, hz: int, left_out: Container[str] = frozenset()
) -> Samples:
    """Read one stack per line, frames separated by ``;``, as py-spy's format `raw` has them.

    Args:
        left_out: The names of threads that are not of interest.
    """
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = _programs_frames(stack.split(";"))
        if not count.isdecimal() or is_agents_thread(frames[0]) or frames[0] in left_out:
            continue
        stacks[frames] += int(count)
    return Samples(unit="samples", stacks=tuple(stacks.most_common()), seconds=seconds, hz=hz)


def stacks_of(trace: Trace) -> Samples:
    """Steps as stacks: stage, path of the module, operators, and the kernel if there is one."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for event in trace.kernels or trace.ops:
        if event.own_ns:
            stacks[_frames(event)] += event.own_ns
    wall_ns = trace.marks[-1].start_ns - trace.marks[0].start_ns
    return Samples(unit="nanoseconds", stacks=tuple(stacks.most_common()), seconds=wall_ns / 1e9)


def frame_times(samples: Samples) -> list[FrameTime]:
    """Every frame, the one with most time of its own first; threads are no frames."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for frames, weight in samples.stacks:
        shown = frames[1:] or frames
        own[shown[-1]] += weight
        for frame in set(shown):
            total[frame] += weight
    found = [FrameTime(frame=frame, own=own[frame], total=total[frame]) for frame in total]
    return sorted(found, key=lambda f: (-f.own, -f.total, f.frame))


def _programs_frames(frames: list[str]) -> tuple[str, ...]:
    """A stack without the recorder's wrapper, unless that is where the thread was."""
    inner = [frame for frame in frames[:-1] if _OWN_CODE.search(frame) is None]
    return (*inner, frames[-1])


def is_agents_thread(name: str) -> bool:
    """Whether py-spy's name for a thread, as in ``thread (42): MainThread``, is of the agent's."""
    return re.search(rf"(?:^|: |\"){_OWN_THREADS}", name) is not None


def _frames(event: Event) -> tuple[str, ...]:
    names: list[str] = []
    at: Event | None = event
    while at is not None:
        name = short_name(at.name)
        if not names or names[-1] != name:
            names.append(name)
        at = at.parent
    return (event.stage or "outside of modules", *_path(event.module), *reversed(names))


def _path(module: str | None) -> tuple[str, ...]:
    """The modules that one is in, and itself; a number alone would not say which block it is."""
    parts = [] if module is None else module.split(".")
    inside = zip(["", *parts], parts, strict=False)
    return tuple(
        [f"{outer}.{part}" if outer and part.isdigit() else part for outer, part in inside]
    )
