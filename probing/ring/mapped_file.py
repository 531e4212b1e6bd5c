"""Maps a file into memory without keeping a descriptor of it.

Rules of this file: no torch; runs where a ring is made and let go of. Python's own ``mmap`` keeps a
descriptor for each mapping, of which a process has few, and they are the training's. A file that is
cut short while it is mapped would end the process by SIGBUS; the C part, where it was built, makes
it whole again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .native import IN_C

_LIBC = ctypes.CDLL(None, use_errno=True)
_MAP: Any = _LIBC.mmap
_MAP.restype = ctypes.c_void_p
_MAP.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_UNMAP: Any = _LIBC.munmap
_UNMAP.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_ADVISE: Any = _LIBC.madvise
_ADVISE.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_VIEW: Any = ctypes.pythonapi.PyMemoryView_FromMemory
_VIEW.restype = ctypes.py_object
_VIEW.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_WRITABLE = 0x200
_FAILED = ctypes.c_void_p(-1).value


class MappedFile:
    """A file in memory.

    Attributes:
        view: All of it; of no use any more once it is closed.
    """

    def __init__(self, fd: int, size: int) -> None:
        """Map the first `size` bytes, to be read and written; the descriptor may be closed then.

        Raises:
            OSError: It cannot be mapped.
        """
        access = mmap.PROT_READ | mmap.PROT_WRITE
        self._address = _MAP(None, size, access, mmap.MAP_SHARED, fd, 0)
        self._size = size
        if self._address in {None, _FAILED}:
            number = ctypes.get_errno() or errno.ENOMEM
            raise OSError(number, os.strerror(number))
        self.view: memoryview = _VIEW(self._address, size, _WRITABLE)

    def protect(self, path: Path, header: bytes) -> None:
        """Have the process outlive that the file is cut short, where the C part is there.

        Args:
            path: Where the file lies now.
            header: What it begins with.
        """
        if IN_C is not None:
            with contextlib.suppress(OSError):  # then it is as without the C part
                IN_C.protect(self._address, self._size, os.fsencode(path), header)

    def trouble(self) -> str | None:
        """What has happened to the file while it was protected; None where nothing has."""
        if IN_C is None or self._address is None:
            return None
        made_whole, is_lost = IN_C.cuts(self._address)
        if is_lost:
            return "the file could no longer be written to, and what came after is not on record"
        if made_whole:
            times = "once" if made_whole == 1 else f"{made_whole} times"
            return f"somebody cut the file short, {times}: it was made whole, without its rows"
        return None

    def release_pages(self) -> None:
        """Give what is in memory of it back to the kernel; the data stays in the file."""
        if self._address is not None:
            _ADVISE(self._address, self._size, mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap it; to close it twice is harmless.

        Raises:
            BufferError: Somebody writes to it at this moment.
        """
        self.view.release()
        address, self._address = self._address, None
        if address is not None:
            if IN_C is not None:
                IN_C.unprotect(address)
            _UNMAP(address, self._size)


@contextlib.contextmanager
def unguarded() -> Iterator[None]:
    """Let SIGBUS be handled without us meanwhile, and before all others again then."""
    if IN_C is None:
        yield
        return
    IN_C.stand_aside()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            IN_C.stand_before()
