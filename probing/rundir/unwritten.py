"""Gives back what the files of an ended process have reserved and never written.

Rules of this file: only for files that nobody writes to any more. What is in them stays as it is to
the byte, and so does their length: a hole reads as the zeros that were there.
"""

from __future__ import annotations

import ctypes
import os
import stat
from pathlib import Path

from ..linux.foreign_files import open_file

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PIECE = 1 << 20
_NOTHING = bytes(_PIECE)


def give_back(path: Path) -> None:
    """Make a hole of the zeros at the end of a file, where its file system can.

    Raises:
        OSError: It cannot be read or changed.
    """
    reading = open_file(path)
    try:
        info = os.fstat(reading)
        if info.st_blocks * 512 < info.st_size:  # it has been done
            return
        used = _used(reading, info.st_size)
        if used == info.st_size:
            return
        mode = stat.S_IMODE(info.st_mode)
        os.fchmod(reading, mode | stat.S_IWUSR)
        try:
            writing = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)
            try:
                _LIBC.fallocate(writing, _KEEP_SIZE | _PUNCH_HOLE, used, info.st_size - used)
                os.utime(writing, ns=(info.st_atime_ns, info.st_mtime_ns))  # it tells its age
            finally:
                os.close(writing)
        finally:
            os.fchmod(reading, mode)
    finally:
        os.close(reading)


def _used(fd: int, size: int) -> int:
    """Where the zeros at the end of a file begin."""
    end = size
    while end:
        begin = max(0, end - _PIECE)
        piece = os.pread(fd, end - begin, begin)
        if piece != _NOTHING[: len(piece)]:
            return begin + len(piece.rstrip(b"\0"))
        end = begin
    return 0
