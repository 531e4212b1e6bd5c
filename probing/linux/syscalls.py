"""The numbers of the system calls that threads wait in.

Rules of this file: numbers and names as the kernel has them, for the machines we run on; no
meaning, which is in `waits`.
"""

from __future__ import annotations

import os

ON_DESCRIPTORS = frozenset(
    {
        *("read", "readv", "pread64", "write", "writev", "pwrite64", "fsync", "fdatasync"),
        *("flock", "fcntl", "ioctl", "accept", "accept4", "connect", "sendto", "sendmsg"),
        *("recvfrom", "recvmsg", "recvmmsg"),
    }
)
"""Calls whose first argument is a descriptor."""


def _table(text: str) -> dict[int, str]:
    """The names by number of a list of names and numbers."""
    return {int(number): name for name, number in (pair.split() for pair in text.split(","))}


_X86_64 = _table(
    "read 0, write 1, open 2, poll 7, ioctl 16, pread64 17, pwrite64 18, readv 19, "
    "writev 20, select 23, sched_yield 24, msync 26, pause 34, nanosleep 35, sendfile 40, "
    "connect 42, accept 43, sendto 44, recvfrom 45, sendmsg 46, recvmsg 47, clone 56, "
    "fork 57, vfork 58, wait4 61, kill 62, semop 65, fcntl 72, flock 73, fsync 74, "
    "fdatasync 75, rt_sigtimedwait 128, rt_sigsuspend 130, tkill 200, futex 202, "
    "restart_syscall 219, semtimedop 220, clock_nanosleep 230, epoll_wait 232, tgkill 234, "
    "mq_timedreceive 243, waitid 247, openat 257, pselect6 270, ppoll 271, splice 275, "
    "epoll_pwait 281, accept4 288, recvmmsg 299"
)
_AARCH64 = _table(
    "epoll_pwait 22, fcntl 25, ioctl 29, flock 32, openat 56, read 63, write 64, readv 65, "
    "writev 66, pread64 67, pwrite64 68, sendfile 71, pselect6 72, ppoll 73, splice 76, "
    "fsync 82, fdatasync 83, waitid 95, futex 98, nanosleep 101, clock_nanosleep 115, "
    "sched_yield 124, restart_syscall 128, kill 129, tkill 130, tgkill 131, "
    "rt_sigsuspend 133, rt_sigtimedwait 137, mq_timedreceive 183, semtimedop 192, semop 193, "
    "accept 202, connect 203, sendto 206, recvfrom 207, sendmsg 211, recvmsg 212, clone 220, "
    "msync 227, accept4 242, recvmmsg 243, wait4 260"
)
_NEWER = {426: "io_uring_enter", 435: "clone3", 441: "epoll_pwait2", 455: "futex_wait"}
"""Numbers that all machines share."""
NUMBERS = {"x86_64": _X86_64 | _NEWER, "aarch64": _AARCH64 | _NEWER}
"""The names by machine and number."""


def name_of(number: int, machine: str | None = None) -> str:
    """What a system call is called.

    Args:
        machine: As `os.uname` names it; this machine where it is left out.
    """
    names = NUMBERS.get(machine or os.uname().machine, {})
    return names.get(number, f"syscall {number}")
