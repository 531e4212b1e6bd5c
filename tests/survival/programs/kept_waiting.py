"""Keeps whoever reads its command line, or a page it names, waiting for ever.

Pages that are not there are answered for by it, and it never answers (userfaultfd). Prints `ready`
and the address of such a page. Only root may do so to the kernel itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import struct

PAGE = os.sysconf("SC_PAGE_SIZE")
NUMBERS = {"x86_64": 323, "aarch64": 282}
API, REGISTER, MISSING = 0xC018AA3F, 0xC020AA00, 1
READ_WRITE, FIXED, ANONYMOUS = 3, 0x10, 0x22
ARG_START = 47
"""Which field of `stat` behind the process's own number is where its arguments begin."""

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)


def keep_back(faults: int, address: int, flags: int) -> int:
    """Put a page there that never comes; returns its address."""
    at = int(libc.mmap(address, PAGE, READ_WRITE, flags, -1, 0))
    fcntl.ioctl(faults, REGISTER, struct.pack("<4Q", at, PAGE, MISSING, 0))
    return at


def main() -> None:
    """Keep the page of the arguments back, and another one."""
    faults = libc.syscall(NUMBERS[platform.machine()], os.O_CLOEXEC | os.O_NONBLOCK)
    if faults < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    fcntl.ioctl(faults, API, struct.pack("<3Q", 0xAA, 0, 0))
    page = keep_back(faults, 0, ANONYMOUS)
    with open("/proc/self/stat") as file:
        arguments = int(file.read().rpartition(")")[2].split()[ARG_START - 2])
    print("ready", page, flush=True)
    keep_back(faults, arguments & -PAGE, ANONYMOUS | FIXED)
    signal.pause()


if __name__ == "__main__":
    main()
