"""Keeps whoever reads its memory waiting for ever, and sleeps.

A page of it is not there, and it never answers for it (userfaultfd): that which holds the code that
its main thread runs. Prints `ready` before. Only root may do so to the kernel itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct

PAGE = os.sysconf("SC_PAGE_SIZE")
NUMBERS = {"x86_64": 323, "aarch64": 282}
API, REGISTER, MISSING = 0xC018AA3F, 0xC020AA00, 1
DONT_NEED = 4

libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.syscall.argtypes = (ctypes.c_long, *[ctypes.c_void_p] * 3)


def main() -> None:
    """Keep the page of this very function's code back."""
    faults = libc.syscall(NUMBERS[platform.machine()], os.O_CLOEXEC, 0, 0)
    if faults < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    fcntl.ioctl(faults, API, struct.pack("<3Q", 0xAA, 0, 0))
    page = id(main.__code__) & -PAGE
    fcntl.ioctl(faults, REGISTER, struct.pack("<4Q", page, PAGE, MISSING, 0))
    print("ready", flush=True)
    libc.madvise(page, PAGE, DONT_NEED)
    main.__code__.co_flags  # noqa: B018 - it is the first to wait for the page


if __name__ == "__main__":
    main()
