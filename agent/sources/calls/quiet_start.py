"""Sets up the library behind torch.profiler without a line on the program's stderr.

The library is set up once in a process, by the first profile. In another thread than that which has
loaded torch it tells C's stderr so, whatever its log level is, and works all the same.

Rules of this file: runs in the training thread, around the first profile only. Where `stderr` is a
variable of the C library, as glibc documents it, it stands for a buffer meanwhile. What others have
written to that is handed on; Python and C++ do not come by here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_LINE = b"External init callback must run in same thread as registerClient"
_STDERR = 2
_done: list[bool] = []


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Keep that line from the program, the first time."""
    if _done or not _is_glibc():
        yield
        return
    _done.append(True)
    library = ctypes.PyDLL(None)
    library.open_memstream.restype = library.calloc.restype = ctypes.c_void_p
    place = ctypes.c_void_p.in_dll(library, "stderr")
    # Where the buffer tells its text and length: also as the process ends, when Python is no more.
    told = library.calloc(2, ctypes.sizeof(ctypes.c_void_p))
    ends = ctypes.c_void_p(told), ctypes.c_void_p(told + ctypes.sizeof(ctypes.c_void_p))
    buffer = library.open_memstream(*ends) if told else None
    if not buffer:
        yield
        return
    theirs, place.value = place.value, buffer
    try:
        yield
    finally:
        place.value = theirs
        library.fflush(ctypes.c_void_p(buffer))  # it stays: a thread may be writing to it still
        text, size = (ctypes.c_size_t.from_address(end.value or 0).value for end in ends)
        _hand_on(ctypes.string_at(text, size) if size else b"")


def _hand_on(text: bytes) -> None:
    """Write what is not that line where it was to go."""
    rest = b"".join(line for line in text.splitlines(keepends=True) if _LINE not in line)
    if rest:
        with contextlib.suppress(OSError):
            os.write(_STDERR, rest)


def _is_glibc() -> bool:
    """Whether the C library is one whose `stderr` may be set."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False
