"""What is written down about an unhandled exception.

Rules of this file: runs when a process is about to end, perhaps out of memory: it imports
nothing, changes nothing of the exception, and bounds all that it keeps. Nor may anything here make
a class or call `exec` (a dataclass and a named tuple do): that would have Python forget that it is
ending by KeyboardInterrupt, and exit with 1 instead of by SIGINT. So what is made here are
dictionaries; they are decoded as a `probing.postmortem.crashes.CrashRecord`, whose members these
are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

from ...safety.other_stacks import current_stacks
from ...safety.this_thread import thread_name
from ...stacks.source_lines import SourceLines
from ..recording.safe_points import AGENT_THREAD_PREFIX
from ..recording.training_thread import number_of
from .own_frames import parts_of

_MAX_MESSAGE = 4000
_MAX_LINE = 300
_MAX_FRAMES = 200
_MAX_THREADS = 200
_MAX_LINKS = 16

Record = dict[str, Any]
_Place = tuple[CodeType, int]


def describe(
    kind: str, value: BaseException, traceback: TracebackType | None, thread: threading.Thread
) -> Record:
    """The record of an exception with the frames it came through, without other threads.

    Args:
        kind: ``exception``, or ``thread exception``.
        thread: The thread that it ended.
    """
    places, part = _places_through(traceback), value
    for _ in range(_MAX_LINKS):
        if not (parts := parts_of(part)):
            break
        part = parts[0]
        places = _places_through(part.__traceback__) + places
    return {
        "when_ns": time.time_ns(),
        "monotonic_ns": time.perf_counter_ns(),
        "kind": kind,
        "type": _name(type(value)),
        "message": _message(value),
        "left_out": max(0, len(places) - _MAX_FRAMES),
        "chain": [
            {"relation": relation, "type": _name(type(link)), "message": _message(link)}
            for relation, link in _links(value)
        ],
        "threads": [_thread(thread, places, SourceLines())],
    }


def other_threads(record: Record) -> list[Record]:
    """The stacks of the job's threads but the one of a record, main thread first."""
    stacks = current_stacks()
    del stacks[threading.get_ident()]  # this very frame, which would hold itself and all others
    source = SourceLines()
    threads = [
        t for t in threading.enumerate() if number_of(t) != record["threads"][0]["thread_id"]
    ]
    threads.sort(key=lambda thread: thread is not threading.main_thread())
    return [
        _thread(thread, _places_of(stacks.get(thread.ident or 0, [])), source)
        for thread in threads[:_MAX_THREADS]
        if not thread_name(thread).startswith(AGENT_THREAD_PREFIX)
    ]


def _thread(thread: threading.Thread, places: list[_Place], source: SourceLines) -> Record:
    """One thread, where it is in its code; the middle of a runaway recursion is left out."""
    if len(places) > _MAX_FRAMES:
        places = [*places[: _MAX_FRAMES // 2], *places[-_MAX_FRAMES // 2 :]]
    return {
        "thread_id": number_of(thread),
        "name": thread_name(thread),
        "is_main": thread is threading.main_thread(),
        "daemon": thread.daemon,
        "frames": [_frame(code, lineno, source) for code, lineno in places],
    }


def _places_of(stack: list[FrameType]) -> list[_Place]:
    return [(one.f_code, one.f_lineno or 0) for one in stack]


def _places_through(traceback: TracebackType | None) -> list[_Place]:
    """Where each frame is that an exception came through, innermost first."""
    places = []
    while traceback is not None:
        places.append((traceback.tb_frame.f_code, traceback.tb_lineno or 0))
        traceback = traceback.tb_next
    places.reverse()
    return places


def _frame(code: CodeType, lineno: int, source: SourceLines) -> Record:
    line = source.line(code.co_filename, lineno)
    return {
        "func": getattr(code, "co_qualname", code.co_name),  # 3.11 and newer know the class
        "file": code.co_filename,
        "lineno": lineno,
        "line": line[:_MAX_LINE] if line else None,
    }


def _links(value: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The exceptions that led to one, as Python would print them, the nearest first."""
    seen, pending = {id(value)}, _before(value)
    while pending and len(seen) <= _MAX_LINKS:
        relation, link = pending.pop(0)
        if id(link) not in seen:
            seen.add(id(link))
            yield relation, link
            pending = _before(link) + pending


def _before(value: BaseException) -> list[tuple[str, BaseException]]:
    """What led to an exception itself: the parts of a group, then its cause or context."""
    found: list[tuple[str, BaseException]] = [("part", part) for part in parts_of(value)]
    if value.__cause__ is not None:
        found.append(("cause", value.__cause__))
    elif value.__context__ is not None and not value.__suppress_context__:
        found.append(("context", value.__context__))
    return found


def _name(kind: type[BaseException]) -> str:
    """A class by the name that Python prints."""
    if kind.__module__ in {"builtins", "__main__"}:
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _message(value: BaseException) -> str:
    """What an exception says, as far as it can."""
    try:
        return str(value)[:_MAX_MESSAGE]
    except Exception:  # noqa: BLE001 - the user's code, in an object that may be half made
        return "(its message cannot be shown)"
