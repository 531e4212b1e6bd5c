"""Two looks at a process of which one is its agent's and the other was taken from outside.

Rules of this file: pure functions of backtraces. Only an agent knows who has what a thread waits
for. What it has seen counts for the other look, too, where the thread is still at the same place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....messages.common import Backtrace, Frame, ThreadStack

_OF_AGENT = "agent"


def is_agents(look: Backtrace) -> bool:
    """Whether the agent of the process took part in a look."""
    return look.source.startswith(_OF_AGENT)


def with_same_waits(first: Backtrace, second: Backtrace) -> tuple[Backtrace, Backtrace]:
    """Both looks, each with what the agent knew in the other."""
    if is_agents(first) == is_agents(second):
        return first, second
    if is_agents(first):
        return first, _with_waits(second, first)
    return _with_waits(first, second), second


def _with_waits(outside: Backtrace, known: Backtrace) -> Backtrace:
    by_number = {thread.thread_id: thread for thread in known.threads}
    threads = tuple(
        dataclasses.replace(thread, awaits=same.awaits)
        if (same := by_number.get(thread.thread_id)) is not None
        and same.awaits is not None
        and _places(same.frames) == _places(thread.frames)
        else thread
        for thread in outside.threads
    )
    return dataclasses.replace(outside, threads=threads)


def _places(frames: Sequence[Frame]) -> list[tuple[str, str, int]]:
    """Where a thread is: its Python frames, whose names may or may not have their class."""
    return [
        (frame.func.rpartition(".")[2], frame.file, frame.lineno)
        for frame in frames
        if frame.kind == "python"
    ]


def others_cpu(first: Backtrace, second: Backtrace, thread: ThreadStack) -> float:
    """Processor seconds of the other threads, where a thread may wait for any of them.

    That is where neither look is the agent's; those count that both have seen.
    """
    if is_agents(first) or is_agents(second):
        return 0.0
    before = {one.thread_id: one.cpu_s for one in first.threads}
    return sum(
        max(0.0, one.cpu_s - cpu_s)
        for one in second.threads
        if one.thread_id != thread.thread_id
        and one.cpu_s is not None
        and (cpu_s := before.get(one.thread_id)) is not None
    )
