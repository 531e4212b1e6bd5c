"""The frames of a thread whose names code that was sent can use.

Rules of this file: looks at frames of other threads, and leaves nothing behind in them: before
Python 3.13 a frame keeps the copy of its locals that was made for whoever asked, and with it the
tensors of that moment. A local of a thread that runs is never written where that is not atomic.
What runs the script's functions, an event loop or a pool of threads, is passed over: in its place
stand the coroutines that wait to go on, for a training awaits there.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Collection
from types import AsyncGeneratorType, CoroutineType, FrameType
from typing import Any, NamedTuple

from ...errors import NoSuchFrame, NoSuchThread
from ...safety import other_stacks
from ...safety.other_stacks import current_stacks
from ...safety.this_thread import thread_name
from ..recording.safe_points import AGENT_THREAD_PREFIX, SafePoints
from ..recording.training_thread import number_of
from ..sources.storage.living import objects_of

_NOT_THE_USERS = ("torch.", "probing.")
_LOOPS = ("asyncio.", "uvloop.")
_NOT_ON_STACKS = (*_NOT_THE_USERS, *_LOOPS, "concurrent.futures.", "threading.", "selectors.")
_NOT_WAITING = (*_NOT_ON_STACKS, "aiohttp.")
_HOLDER = SafePoints.__module__
_CO_OPTIMIZED = 1
ONLY_THE_FRAMES = 3
"""References to such a copy: the frame's, a variable's, and that of who counts them. With more of
them the script has kept what `locals()` gave it, which is this very dictionary.
"""
_MOST_SHOWN = 12


class _Names(NamedTuple):
    """What a kind of coroutine calls its parts."""

    frame: str
    running: str
    awaits: str


_AWAITING: dict[type, _Names] = {
    CoroutineType: _Names("cr_frame", "cr_running", "cr_await"),
    AsyncGeneratorType: _Names("ag_frame", "ag_running", "ag_await"),
}


class Place(NamedTuple):
    """Whose locals are meant.

    Attributes:
        thread_id: The thread's number in the kernel; 0 for the main thread.
        frame: One frame of the script's, 0 being the innermost; None for all of them.
        is_chosen: Whether the user has named the thread or the frame: its names come first then.
    """

    thread_id: int
    frame: int | None = None
    is_chosen: bool = False


def find_thread(wanted: str) -> threading.Thread:
    """A thread of the job by its name or its number in the kernel.

    Raises:
        NoSuchThread: There is none.
    """
    threads = [
        t for t in threading.enumerate() if not thread_name(t).startswith(AGENT_THREAD_PREFIX)
    ]
    for thread in threads:
        if wanted in (thread_name(thread), str(number_of(thread))):
            return thread
    raise NoSuchThread(
        wanted, [f"{thread_name(t)} ({number_of(t)})" for t in threads[:_MOST_SHOWN]]
    )


def thread_of(thread_id: int) -> threading.Thread:
    """A thread by its number in the kernel; the main thread where there is none of that number."""
    for thread in threading.enumerate():
        if number_of(thread) == thread_id:
            return thread
    return threading.main_thread()


def stack_in(thread_id: int) -> list[FrameType]:
    """The stack of a thread by its kernel number, innermost frame first; 0 means the main one."""
    return current_stacks().get(thread_of(thread_id).ident or 0, [])


def frames_at(place: Place, known: Collection[object] = ()) -> list[FrameType]:
    """The frames that are meant, innermost first.

    Args:
        known: The training's model and optimizer: of coroutines that wait, those that have one of
            them come first.

    Raises:
        NoSuchFrame: The one that was asked for is not there.
    """
    waiting = waiting_frames(known)
    frames = _own_frames(stack_in(place.thread_id), waiting)
    if not place.is_chosen:
        frames += [frame for frame in waiting if frame not in frames]
    if place.frame is None:
        return frames
    if not 0 <= place.frame < len(frames):
        shown = [f"{i} {describe_frame(f)}" for i, f in enumerate(frames[:_MOST_SHOWN])]
        raise NoSuchFrame(place.frame, thread_name(thread_of(place.thread_id)), shown)
    return [frames[place.frame]]


def stands_still(frame: FrameType, thread_id: int) -> bool:
    """Whether a frame cannot go on while a thread is held: it is of its stack, or of its loop."""
    return frame in _own_frames(stack_in(thread_id), waiting_frames(()))


def describe_frame(frame: FrameType) -> str:
    """A frame by its function and line."""
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)  # 3.11 and newer know the class
    return f"{name} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"


def has_local(frame: FrameType, name: str) -> bool:
    """Whether a name is that of a local variable of a function's frame, bound or not."""
    code = frame.f_code
    return name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy of the locals of a frame; those of a module are its globals, not meant here."""
    values = other_stacks.locals_of(frame)
    if values is frame.f_globals:
        return {}
    try:
        return dict(values)
    finally:
        if is_frames_copy(frame, values) and sys.getrefcount(values) <= ONLY_THE_FRAMES:
            values.clear()


def write_local(frame: FrameType, name: str, value: object, *, is_held: bool) -> None:
    """Give a local variable of a frame another value.

    Args:
        is_held: Whether the frame's thread stands still meanwhile.

    Raises:
        RuntimeError: This Python can do so only while the thread stands still, and it does not.
    """
    values = other_stacks.locals_of(frame)
    if type(values) is not dict or not frame.f_code.co_flags & _CO_OPTIMIZED:
        values[name] = value  # from 3.13 on this reaches the frame
        return
    if not is_held:
        if sys.getrefcount(values) <= ONLY_THE_FRAMES:
            values.clear()
        raise RuntimeError(
            f"{name} is a local of {describe_frame(frame)}, whose thread is not held at a safe"
            f" point; Python {sys.version_info[0]}.{sys.version_info[1]} can change it only there"
        )
    values[name] = value
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    if is_frames_copy(frame, values) and sys.getrefcount(values) <= ONLY_THE_FRAMES:
        values.clear()


def is_frames_copy(frame: FrameType, values: object) -> bool:
    """Whether locals are the copy that a function's frame keeps; a debugger's is the debugger's.

    Whoever has asked for them empties it, unless the script has it, too: see `ONLY_THE_FRAMES`.
    """
    is_copy = type(values) is dict and bool(frame.f_code.co_flags & _CO_OPTIMIZED)
    return is_copy and frame.f_trace is None


def _own_frames(stack: list[FrameType], waiting: list[FrameType]) -> list[FrameType]:
    """The frames of a stack but those of torch and of probing, and of what holds it for us.

    Args:
        waiting: Those of coroutines that wait: they stand in the place of a loop that runs here.
    """
    frames: list[FrameType] = []
    is_loop_met = False
    for one in stack:
        module = _module(one)
        if module == f"{_HOLDER}.":
            frames.clear()
        elif module.startswith(_LOOPS):
            frames += () if is_loop_met else waiting
            is_loop_met = True
        elif not module.startswith(_NOT_ON_STACKS):
            frames.append(one)
    return frames


def waiting_frames(known: Collection[object]) -> list[FrameType]:
    """The frames of the script's coroutines that wait to go on, each before that which awaits it.

    They are looked for only where a thread of the script's runs an event loop.

    Args:
        known: As of `frames_at`.
    """
    if not _has_loop():
        return []
    waiting = objects_of(_AWAITING)
    awaited = {id(getattr(thing, _AWAITING[type(thing)].awaits)) for thing in waiting}
    ids = {id(thing) for thing in known if thing is not None}
    chains = [_chain(thing) for thing in waiting if id(thing) not in awaited]
    chains.sort(key=lambda chain: not any(ids.intersection(_local_ids(f)) for f in chain))
    return [frame for chain in chains for frame in chain]


def _has_loop() -> bool:
    """Whether a thread that is not the agent's runs an event loop."""
    own = {t.ident for t in threading.enumerate() if thread_name(t).startswith(AGENT_THREAD_PREFIX)}
    stacks = current_stacks()
    del stacks[threading.get_ident()][0]  # this very frame, which would hold itself
    return any(
        _module(frame).startswith(_LOOPS)
        for ident, stack in stacks.items()
        if ident not in own
        for frame in stack
    )


def _chain(outermost: object) -> list[FrameType]:
    """The frames of a coroutine and of those that it awaits, the innermost first."""
    frames: list[FrameType] = []
    thing = outermost
    while (names := _AWAITING.get(type(thing))) is not None:
        frame: FrameType | None = getattr(thing, names.frame)
        if frame is not None and not getattr(thing, names.running):
            frames.append(frame)
        thing = getattr(thing, names.awaits)
    return [frame for frame in reversed(frames) if not _module(frame).startswith(_NOT_WAITING)]


def _module(frame: FrameType) -> str:
    """The module of a frame's code, with a dot behind it."""
    name = dict.get(frame.f_globals, "__name__", "")  # those of code that was sent look here again
    return f"{name or ''}."


def _local_ids(frame: FrameType) -> set[int]:
    """What the variables of a frame hold, by identity."""
    return {id(value) for value in locals_of(frame).values()}
