"""Stacks, whoever took them: completed, put together, and as rows of tables.

Rules of this file: asks nobody and starts nothing; the agent uses it, too. A `Backtrace` is the
one shape of stacks; both live tables of stacks are made from it here. The agent's own threads and
frames are left out: they are not the job's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..linux import process
from ..linux.process import ThreadFacts
from ..messages.common import Backtrace, Frame, LiveRows, TaskStack, ThreadStack
from ..tables import BACKTRACE, THREADS, Table
from . import waits
from .source_lines import SourceLines, Span
from .waits import BY_DEBUGGER, Sight

AGENT_THREAD_PREFIX = "probing-"
"""How the names of the agent's own threads begin."""
FROZEN = frozenset("DTt")
"""States of a thread that whoever waits for it to pause waits for ever."""
STACK_TABLES = frozenset({BACKTRACE.name, THREADS.name})

_OUR_FILES = re.compile(
    r"/agent/sources/(?:actions|calls|collectives|data|numbers|out_of_memory|shared|steps)/(?:\w+/)*\w+\.py$"
    r"|/agent/(?:recording/first_use|sources/stand_in)\.py$"
    r"|/probing/(?:_boot|_run|safety/guard)\.py$"
)
"""Files of ours whose frames stand between those of the job, and say nothing about it."""
_NUMBERED = re.compile(r"Dummy-\d+|thread 0x[0-9a-f]+")
"""What threads are called that Python has not started."""
_SAFE_POINTS = "/agent/recording/safe_points.py"
_HOLDS = "wait_done"
HELD = "standing still at a safe point, as a question asks it to"
"""What a training thread does while code that was sent looks at its tensors."""
_LOOKS = re.compile(
    r"/agent/sources/(?:storage/(?:memory_look|storages)|leaks/watch|leaks/references/referrers"
    r"|allocation/census|fit/simulation)\.py$"
)
"""Files of ours that look at a training from its own thread; what is inside of them is ours."""
LOOKED_AT = "standing still while probing looks at what is in memory"
"""What a training thread does meanwhile."""


def rows_of(table: Table, backtrace: Backtrace) -> LiveRows:
    """The rows of `python.backtrace` or `python.threads` at the moment of a backtrace."""
    make = _backtrace_rows if table is BACKTRACE else _thread_rows
    return LiveRows.of(table, make(backtrace))


def _backtrace_rows(backtrace: Backtrace) -> list[tuple[Any, ...]]:
    """One row per frame, in the order of the table's columns."""
    return [
        (
            frame.func,
            frame.file,
            frame.lineno,
            depth,
            thread.thread_id,
            thread.name,
            thread.is_main,
            frame.kind,
            backtrace.source,
        )
        for thread in backtrace.threads
        for depth, frame in enumerate(thread.frames)
    ]


def _thread_rows(backtrace: Backtrace) -> list[tuple[Any, ...]]:
    """One row per thread, in the order of the table's columns."""
    rows = []
    for thread in backtrace.threads:
        top = thread.frames[0] if thread.frames else None
        where = (top.func, top.file, top.lineno) if top else (None, None, None)
        facts = (thread.daemon, thread.alive, thread.state, thread.cpu_s)
        identity = (thread.thread_id, thread.name, thread.is_main)
        awaits = thread.awaits
        wait = (thread.waiting, thread.holds_gil, thread.wchan)
        held = (awaits.what, awaits.holder_id) if awaits else (None, None)
        rows.append((*identity, *facts, *where, *wait, *held, backtrace.source))
    return rows


def is_ours(file: str) -> bool:
    """Whether a frame of that file is the recorder's and not the job's."""
    return _OUR_FILES.search(file) is not None


def is_agents(thread: ThreadStack) -> bool:
    """Whether a thread is one of the agent's own, as far as its name tells."""
    return thread.name.startswith(AGENT_THREAD_PREFIX)


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped the process."""
    return process.state(pid) in {"T", "t"}


def stop_words(pid: int) -> tuple[str, str] | None:
    """What has stopped a process, and what lets it go on; None where nothing has."""
    state = process.state(pid)
    if state == "t":
        tracer = process.status(pid).get("TracerPid", "0")
        return BY_DEBUGGER, f"process {tracer} lets it go on, or its own end does"
    return ("stopped by a signal", f"kill -CONT {pid} lets it go on") if state == "T" else None


def complete(
    threads: Iterable[ThreadStack],
    facts: Mapping[int, ThreadFacts],
    *,
    wants_gil: Iterable[int] = (),
    has_native: bool = False,
    by_agent: bool = False,
    spans: Mapping[int, Span] = MappingProxyType({}),
) -> tuple[ThreadStack, ...]:
    """The job's threads, main thread first, with what the kernel tells and what they wait for.

    Args:
        wants_gil: The threads that were seen to wait for the interpreter lock.
        has_native: Whether frames of C functions were looked for.
        by_agent: Whether the agent looked, or was at work meanwhile.
        spans: By thread where in its source the innermost frame is.
    """
    source, waiters, done = SourceLines(), set(wants_gil), []
    own = [thread for thread in threads if not is_agents(thread)]
    program = next((facts[t.thread_id].name for t in own if t.is_main and t.thread_id in facts), "")
    may_be_idle = not waits.may_be_in_backward(thread.frames for thread in own)
    for thread in own:
        fact = facts.get(thread.thread_id)
        seen, held = _of_job(thread.frames)
        span = spans.get(thread.thread_id) if seen[:1] == list(thread.frames[:1]) else None
        frames = _with_lines(seen, source, span)
        sight = Sight(
            frames=frames,
            facts=fact,
            wants_gil=thread.thread_id in waiters and not thread.holds_gil,
            by_agent=by_agent,
            has_native=has_native,
        )
        idle = waits.idle_device(sight) if may_be_idle else None
        done.append(
            dataclasses.replace(
                thread,
                name=_name_of(thread, fact, program),
                frames=frames,
                state=fact.state if fact else None,
                cpu_s=fact.cpu_s if fact else None,
                ready_s=fact.ready_s if fact else None,
                sleeps=fact.switches if fact else None,
                wchan=fact.wchan if fact else None,
                waiting=held or idle or waits.describe(sight),
            )
        )
    return tuple(sorted(done, key=lambda thread: not thread.is_main))


def _name_of(thread: ThreadStack, fact: ThreadFacts | None, program: str) -> str:
    """What a thread is called: what C++ does, where Python has nothing but a number for it.

    Args:
        program: What the kernel calls threads that nobody has given a name.
    """
    has_name = fact is not None and fact.name and fact.name != program
    return fact.name if fact and has_name and _NUMBERED.fullmatch(thread.name) else thread.name


def _of_job(frames: Sequence[Frame]) -> tuple[list[Frame], str | None]:
    """The frames of the job's, and words about what we hold the thread for, where we do."""
    ours = [n for n, frame in enumerate(frames) if frame.file.endswith(_SAFE_POINTS)]
    is_held = any(frames[n].func.rpartition(".")[2] == _HOLDS for n in ours)
    looks = [n for n, frame in enumerate(frames) if _LOOKS.search(frame.file)]
    inner = max(ours[-1] if is_held else -1, *looks, -1)
    own = [
        frame
        for n, frame in enumerate(frames)
        if not (n in ours or is_ours(frame.file) or n <= inner)
    ]
    return own, HELD if is_held else LOOKED_AT if looks else None


def task_stack(
    *,
    kind: str,
    name: str,
    frames: Iterable[Frame],
    otherwise: str,
    thread_id: int = 0,
    owner: str = "",
) -> TaskStack:
    """A task with the text of its lines and what it waits for.

    Args:
        otherwise: What it does, where its frames do not say what it waits for.
        owner: Words about who has that, to be put behind.
    """
    source = SourceLines()
    shown = tuple([_with_line(frame, source) for frame in frames])
    words = waits.describe(Sight(frames=shown)) or otherwise
    return TaskStack(
        kind=kind, name=name, frames=shown, thread_id=thread_id, waiting=f"{words}{owner}"
    )


def from_kernel(facts: Mapping[int, ThreadFacts], pid: int) -> tuple[ThreadStack, ...]:
    """Threads of which only the kernel tells."""
    threads = [
        ThreadStack(thread_id=number, name=fact.name, is_main=number == pid, frames=())
        for number, fact in facts.items()
    ]
    return complete(threads, facts)


def merge(inside: Sequence[ThreadStack], outside: Sequence[ThreadStack]) -> list[ThreadStack]:
    """What the agent and py-spy saw of the same threads.

    Names, qualified names and local variables are the agent's. The order of the frames, those of
    C functions and the owner of the interpreter lock are py-spy's, which came later.
    """
    seen = {thread.thread_id: thread for thread in outside}
    merged = []
    for thread in inside:
        other = seen.pop(thread.thread_id, None)
        if other is not None:
            frames = _merge_frames(thread.frames, other.frames)
            thread = dataclasses.replace(thread, frames=frames, holds_gil=other.holds_gil)  # noqa: PLW2901
        merged.append(thread)
    return merged + [thread for thread in seen.values() if any(_python(thread.frames))]


def gil_holder(
    threads: Iterable[ThreadStack], facts: Mapping[int, ThreadFacts] | None = None
) -> str | None:
    """Which thread holds the interpreter lock and where, as a clause; None where none does.

    An agent's thread does so only for as long as it looks, so it does not count.
    """
    holder = next((thread for thread in threads if thread.holds_gil), None)
    if holder is None or is_agents(holder):
        return None
    number = f"{holder.thread_id} " if holder.thread_id else ""
    clause = f'thread {number}"{holder.name}" holds the interpreter lock'
    frames = [frame for frame in _python(holder.frames) if not is_ours(frame.file)]
    own = next((frame for frame in frames if waits.library_path(frame.file) is None), None)
    if frames:
        clause += f" in {_place(frames[0])}"
        clause += f", called from {_place(own)}" if own and own is not frames[0] else ""
    function = waits.c_function(holder.frames)
    fact = (facts or {}).get(holder.thread_id)
    if function:
        clause += f", in C function {function}"
    elif fact and fact.call and fact.call.name != "restart_syscall":  # the kernel's, after a stop
        clause += f", in the system call {fact.call.name}"
    return clause


def _place(frame: Frame) -> str:
    """A frame in a sentence."""
    file = waits.library_path(frame.file) or frame.file.rpartition("/")[2]
    return f"{frame.func} ({file}:{frame.lineno})"


def _python(frames: Iterable[Frame]) -> Iterator[Frame]:
    return (frame for frame in frames if frame.kind == "python")


def _merge_frames(inside: Sequence[Frame], outside: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames seen from outside, as the agent knows them from the outermost inwards."""
    known = [frame for frame in inside if not is_ours(frame.file)]
    merged = []
    for frame in reversed([frame for frame in outside if not is_ours(frame.file)]):
        if frame.kind == "python" and known and _is_same(known[-1], frame):
            mine = known.pop()
            if mine.lineno != frame.lineno:  # it has moved on since
                mine = dataclasses.replace(mine, lineno=frame.lineno, line=None, call=None)
            merged.append(mine)
        else:
            if frame.kind == "python":
                known = []
            merged.append(frame)
    return tuple(reversed(merged))


def _is_same(mine: Frame, theirs: Frame) -> bool:
    """Whether two frames are of the same function; py-spy's names may lack the class."""
    names = [frame.func.rpartition(".")[2] for frame in (mine, theirs)]
    return mine.file == theirs.file and names[0] == names[1]


def _with_lines(
    frames: Sequence[Frame], source: SourceLines, span: Span | None
) -> tuple[Frame, ...]:
    """The frames with the text of their lines, and the call that the innermost one is in."""
    found = [_with_line(frame, source) for frame in frames]
    if span is not None and found:
        found[0] = dataclasses.replace(found[0], call=source.part(found[0].file, span))
    return tuple(found)


def _with_line(frame: Frame, source: SourceLines) -> Frame:
    """The frame with the text of its line."""
    if frame.kind != "python" or frame.line is not None:
        return frame
    return dataclasses.replace(frame, line=source.line(frame.file, frame.lineno))
