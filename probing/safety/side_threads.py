"""Threads that work beside their caller, for whom the end of the interpreter waits a little.

A daemon thread that comes back into Python as the interpreter ends is cancelled by it, up to Python
3.13. Where a C++ library has called it, or takes the interpreter lock in a destructor, as DuckDB
and Arrow do, that ends the process by SIGABRT: `FATAL: exception not rethrown`.

Rules of this file: such threads belong to who asks, never to a training. Nobody else waits for
them: what hangs, as a server that does not answer, holds up the end no longer than `LONGEST_S`.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable

LONGEST_S = 3.0
"""How long the interpreter's end waits for all of them together."""
_open: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_ending = threading.Event()
_stops: list[Callable[[], object]] = []


def start_aside(work: Callable[[], object], *, name: str) -> threading.Thread:
    """Start a thread that keeps nobody from leaving."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    _open.add(thread)  # one that could not be started cannot be waited for
    return thread


def is_ending() -> bool:
    """Whether the interpreter is about to end: who works aside is to begin nothing more."""
    return _ending.is_set()


def at_end(stop: Callable[[], object]) -> None:
    """Have something called as the interpreter is about to end that makes such threads end."""
    _stops.append(stop)


@atexit.register
def _wait_for_all() -> None:
    """Let them come out of the libraries that they are in."""
    _ending.set()
    for stop in _stops:
        stop()
    until = time.monotonic() + LONGEST_S
    for thread in tuple(_open):
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
