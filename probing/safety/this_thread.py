"""The thread that asks, as `threading` knows it, and the names of all threads.

Rules of this file: any thread of the program may ask, also one that C++ has started, as autograd
does for each device. `threading.current_thread` would make such a thread known as `Dummy-N`, to be
told by `threading.enumerate` ever after: what a program sees of its threads is not ours to change.
"""

from __future__ import annotations

import os
import threading

_numbers: dict[int, int] = {}


def known_thread() -> threading.Thread | None:
    """This thread; None where `threading` does not know it."""
    threads = getattr(threading, "_active", None)  # eventlet has another function in its place
    if threads is None or threading.current_thread.__module__ != threading.__name__:
        return threading.current_thread()
    known: threading.Thread | None = threads.get(threading.get_ident())
    if known is None:
        _numbers[threading.get_ident()] = threading.get_native_id()
    return known


def thread_name(thread: threading.Thread) -> str:
    """The name of any thread as Python has it: a class may have made something else of `name`."""
    name = getattr(thread, "_name", "")
    return name if isinstance(name, str) else ""


def is_called(prefix: str) -> bool:
    """Whether this thread's name begins so."""
    thread = known_thread()
    return thread is not None and thread_name(thread).startswith(prefix)


def number_of_stranger(ident: int) -> int:
    """The kernel's number of a thread that has been here and that `threading` does not know.

    0 where that is not known, as of one that has ended.
    """
    number = _numbers.get(ident, 0)
    return number if number and os.path.exists(f"/proc/self/task/{number}") else 0
