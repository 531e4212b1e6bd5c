"""What differs between processors: registers and the numbers of system calls.

Rules of this file: numbers of the kernel's and the processors' manuals, and nothing that acts.
Registers travel as the bytes of the kernel's general register set (``NT_PRSTATUS``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from . import stubs

_EINTR = (1 << 64) - 4
GENERAL_REGISTERS = 1
"""The kernel's number of the general register set."""


class Machine(NamedTuple):
    """One kind of processor.

    Attributes:
        name: What the kernel calls it.
        registers: The general registers in the order of the register set, 64 bits each.
        other_sets: The register sets that a call may change beside the general one.
        program: The program counter.
        stack: The stack pointer.
        red_zone: How much below it belongs to the function that runs.
        result: Holds what a system call gives back.
        frame: Tells the instructions of the stub where their `Frame` is.
        call: Holds the number of the system call that the thread is in.
        first: Its first argument.
        call_instruction: The instruction of a system call, by which it is told that the thread is
            in one; empty where `call` alone tells it.
        no_restart: Registers to set so that the kernel does not take the changed thread for one
            that is to go on with its interrupted system call.
        ends_early: Numbers of the system calls that the kernel ends with EINTR, instead of going on
            with them, when their thread is stopped only to be looked at.
        begin_again: What `result` must hold so that the kernel makes the call once more; 0 where
            that cannot be asked for.
        stub: What a borrowed thread runs.
        way_back: Makes what lies behind the words of the frame, from the general registers, the
            first of the other sets, and the signal mask.
        harmless_calls: Numbers of the system calls that a thread can be borrowed from: it waits
            there for the outside world, and is not in the middle of anything of its own.
        futex: The number of the one that waits for other threads.
    """

    name: str
    registers: tuple[str, ...]
    other_sets: tuple[int, ...]
    program: str
    stack: str
    red_zone: int
    result: str
    frame: str
    call: str
    first: str
    call_instruction: bytes
    no_restart: tuple[tuple[str, int], ...]
    ends_early: frozenset[int]
    begin_again: int
    stub: stubs.Stub
    way_back: Callable[[dict[str, int], bytes, int], bytes]
    harmless_calls: frozenset[int]
    futex: int

    def unpack(self, data: bytes) -> dict[str, int]:
        """The general registers by name."""
        count = len(self.registers)
        return dict(zip(self.registers, struct.unpack_from(f"<{count}Q", data), strict=True))

    def going_on(self, data: bytes) -> bytes | None:
        """The registers with which a stopped thread goes on with a call that ended for our sake.

        None where nothing need be changed.
        """
        values = self.unpack(data)
        ended = self.begin_again and values[self.result] == _EINTR
        if not (ended and values.get("orig_rax") in self.ends_early):
            return None
        return self.pack({**values, self.result: self.begin_again})

    def pack(self, values: dict[str, int]) -> bytes:
        """The general registers as the kernel takes them; negative numbers are wrapped."""
        numbers = [values[name] & 0xFFFF_FFFF_FFFF_FFFF for name in self.registers]
        return struct.pack(f"<{len(numbers)}Q", *numbers)


_X86_REGISTERS = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss"
    " fs_base gs_base ds es fs gs"
)

# Not in these lists: what may be half done when it is interrupted, as `write` is.

X86_64 = Machine(
    name="x86_64",
    registers=tuple(_X86_REGISTERS.split()),
    other_sets=(0x202,),  # NT_X86_XSTATE
    program="rip",
    stack="rsp",
    red_zone=128,
    result="rax",
    frame="rbx",
    call="orig_rax",
    first="rdi",
    call_instruction=b"",
    no_restart=(("orig_rax", -1),),
    # read (of an inotify descriptor), semop, rt_sigtimedwait, semtimedop, epoll_wait, epoll_pwait,
    # epoll_pwait2
    ends_early=frozenset((0, 65, 128, 220, 232, 281, 441)),
    begin_again=-513,  # -ERESTARTNOINTR, which never leaves the kernel
    stub=stubs.X86_64,
    way_back=stubs.x86_way_back,
    # read, open, poll, select, pause, nanosleep, accept, recvfrom, recvmsg, wait4, fcntl, flock,
    # futex, restart_syscall, clock_nanosleep, epoll_wait, waitid, openat, pselect6, ppoll,
    # epoll_pwait, accept4, epoll_pwait2
    harmless_calls=frozenset(
        {0, 2, 7, 23, 34, 35, 43, 45, 47, 61, 72, 73, 202, 219, 230, 232, 247, 257, 270, 271}
        | {281, 288, 441}
    ),
    futex=202,
)

AARCH64 = Machine(
    name="aarch64",
    registers=(*(f"x{number}" for number in range(31)), "sp", "pc", "pstate"),
    other_sets=(2,),  # NT_PRFPREG
    program="pc",
    stack="sp",
    red_zone=0,
    result="x0",
    frame="x19",
    call="x8",
    first="x0",
    call_instruction=struct.pack("<I", 0xD4000001),  # svc #0
    # The kernel has set the program counter back to the system call before we see the thread.
    no_restart=(),
    ends_early=frozenset(),
    begin_again=0,  # its first argument, which the result has replaced, is not to be had
    stub=stubs.AARCH64,
    way_back=stubs.aarch64_way_back,
    # epoll_pwait, fcntl, flock, openat, read, pselect6, ppoll, waitid, futex, nanosleep,
    # clock_nanosleep, restart_syscall, accept, recvfrom, recvmsg, accept4, wait4, epoll_pwait2
    harmless_calls=frozenset(
        (22, 25, 32, 56, 63, 72, 73, 95, 98, 101, 115, 128, 202, 207, 212, 242, 260, 441)
    ),
    futex=98,
)

MACHINES: dict[str, Machine] = {machine.name: machine for machine in (X86_64, AARCH64)}
