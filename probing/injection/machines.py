"""What differs between processors: registers, calls, and the few instructions we bring along.

Rules of this file: numbers of the kernel's and the processors' manuals, and nothing that acts.
Registers travel as the bytes of the kernel's general register set (``NT_PRSTATUS``).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_EINTR = (1 << 64) - 4
GENERAL_REGISTERS = 1
"""The kernel's number of the general register set."""


class Machine(NamedTuple):
    """One kind of processor.

    Attributes:
        name: What the kernel calls it.
        registers: The general registers in the order of the register set, 64 bits each.
        other_sets: The register sets that a call may change beside the general one.
        arguments: The registers of the first arguments of a function.
        system_arguments: Those of a system call.
        system_number: Holds the number of the system call.
        result: Holds what a function or a system call gives back.
        program: The program counter.
        stack: The stack pointer.
        link: Holds the return address; empty where it lies on the stack.
        no_restart: Registers to set so that the kernel does not take the changed thread for one
            that is to go on with its interrupted system call.
        ends_early: Numbers of the system calls that the kernel ends with EINTR, instead of going on
            with them, when their thread is stopped only to be looked at.
        begin_again: What `result` must hold so that the kernel makes the call once more; 0 where
            that cannot be asked for.
        trap: The instruction that stops a traced thread.
        trapped_at: How far behind its beginning the thread then stands.
        system_call: The instruction of a system call, looked for in the C library.
        thread_body: Runs Python code from a new thread and removes itself; see `ThreadData`.
        mmap, mprotect, munmap: Numbers of system calls.
        harmless_calls: Numbers of the system calls that a thread can be borrowed from: it waits
            there for the outside world, and is not in the middle of anything of its own.
        futex: The number of the one that waits for other threads.
    """

    name: str
    registers: tuple[str, ...]
    other_sets: tuple[int, ...]
    arguments: tuple[str, ...]
    system_arguments: tuple[str, ...]
    system_number: str
    result: str
    program: str
    stack: str
    link: str
    no_restart: tuple[tuple[str, int], ...]
    ends_early: frozenset[int]
    begin_again: int
    trap: bytes
    trapped_at: int
    system_call: bytes
    thread_body: bytes
    mmap: int
    mprotect: int
    munmap: int
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


class ThreadData(NamedTuple):
    """What `Machine.thread_body` finds at the address it is given: eight bytes each.

    Attributes:
        ensure: ``PyGILState_Ensure``: waits for the interpreter lock.
        run: ``PyRun_SimpleString``.
        release: ``PyGILState_Release``.
        code: The code, as UTF-8 with a zero behind it.
        begin, size: The memory that body, data and code lie in, to be given back at the end.
        unmap: ``munmap``. It is jumped to, so that it returns to whoever started the thread.
    """

    ensure: int
    run: int
    release: int
    code: int
    begin: int
    size: int
    unmap: int

    def encode(self) -> bytes:
        """As it lies in memory."""
        return struct.pack(f"<{len(self)}Q", *self)


_X86_REGISTERS = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss"
    " fs_base gs_base ds es fs gs"
)

_X86_THREAD_BODY = bytes.fromhex(
    "53"  #                   push   %rbx
    "4154"  #                 push   %r12
    "4883ec08"  #             sub    $8, %rsp          16-byte aligned from here
    "4889fb"  #               mov    %rdi, %rbx        the ThreadData
    "ff13"  #                 call   *(%rbx)           ensure
    "4189c4"  #               mov    %eax, %r12d
    "488b7b18"  #             mov    24(%rbx), %rdi    code
    "ff5308"  #               call   *8(%rbx)          run
    "4489e7"  #               mov    %r12d, %edi
    "ff5310"  #               call   *16(%rbx)         release
    "488b7b20"  #             mov    32(%rbx), %rdi    begin
    "488b7328"  #             mov    40(%rbx), %rsi    size
    "488b4330"  #             mov    48(%rbx), %rax    unmap
    "4883c408"  #             add    $8, %rsp
    "415c"  #                 pop    %r12
    "5b"  #                   pop    %rbx
    "ffe0"  #                 jmp    *%rax             returns to our caller
)

X86_64 = Machine(
    name="x86_64",
    registers=tuple(_X86_REGISTERS.split()),
    other_sets=(0x202,),  # NT_X86_XSTATE
    arguments=("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
    system_arguments=("rdi", "rsi", "rdx", "r10", "r8", "r9"),
    system_number="rax",
    result="rax",
    program="rip",
    stack="rsp",
    link="",
    no_restart=(("orig_rax", -1),),
    # read (of an inotify descriptor), semop, rt_sigtimedwait, semtimedop, epoll_wait, epoll_pwait,
    # epoll_pwait2
    ends_early=frozenset((0, 65, 128, 220, 232, 281, 441)),
    begin_again=-513,  # -ERESTARTNOINTR, which never leaves the kernel
    trap=b"\xcc",  # int3
    trapped_at=1,
    system_call=b"\x0f\x05",  # syscall
    thread_body=_X86_THREAD_BODY,
    mmap=9,
    mprotect=10,
    munmap=11,
    # read, poll, select, pause, nanosleep, accept, recvfrom, recvmsg, wait4, futex,
    # restart_syscall, clock_nanosleep, epoll_wait, waitid, pselect6, ppoll, epoll_pwait, accept4,
    # epoll_pwait2
    harmless_calls=frozenset(
        (0, 7, 23, 34, 35, 43, 45, 47, 61, 202, 219, 230, 232, 247, 270, 271, 281, 288, 441)
    ),
    futex=202,
)

_AARCH64_THREAD_BODY = struct.pack(
    "<17I",
    0xA9BE7BFD,  # stp x29, x30, [sp, #-32]!
    0xA90153F3,  # stp x19, x20, [sp, #16]
    0xAA0003F3,  # mov x19, x0               the ThreadData
    0xF9400269,  # ldr x9, [x19]             ensure
    0xD63F0120,  # blr x9
    0x2A0003F4,  # mov w20, w0
    0xF9400E60,  # ldr x0, [x19, #24]        code
    0xF9400669,  # ldr x9, [x19, #8]         run
    0xD63F0120,  # blr x9
    0x2A1403E0,  # mov w0, w20
    0xF9400A69,  # ldr x9, [x19, #16]        release
    0xD63F0120,  # blr x9
    0xA9420660,  # ldp x0, x1, [x19, #32]    begin, size
    0xF9401A69,  # ldr x9, [x19, #48]        unmap
    0xA94153F3,  # ldp x19, x20, [sp, #16]
    0xA8C27BFD,  # ldp x29, x30, [sp], #32
    0xD61F0120,  # br x9                     returns to our caller
)

AARCH64 = Machine(
    name="aarch64",
    registers=(*(f"x{number}" for number in range(31)), "sp", "pc", "pstate"),
    other_sets=(2,),  # NT_PRFPREG
    arguments=tuple(f"x{number}" for number in range(8)),
    system_arguments=tuple(f"x{number}" for number in range(6)),
    system_number="x8",
    result="x0",
    program="pc",
    stack="sp",
    link="x30",
    # The kernel has set the program counter back to the system call before we see the thread.
    no_restart=(),
    ends_early=frozenset(),
    begin_again=0,  # its first argument, which the result has replaced, is not to be had
    trap=struct.pack("<I", 0xD4200000),  # brk #0
    trapped_at=0,
    system_call=struct.pack("<I", 0xD4000001),  # svc #0
    thread_body=_AARCH64_THREAD_BODY,
    mmap=222,
    mprotect=226,
    munmap=215,
    # read, ppoll, pselect6, nanosleep, clock_nanosleep, accept, recvfrom, recvmsg, wait4, waitid,
    # futex, restart_syscall, epoll_pwait, accept4, epoll_pwait2
    harmless_calls=frozenset((63, 73, 72, 101, 115, 202, 207, 212, 260, 95, 98, 128, 22, 242, 441)),
    futex=98,
)

MACHINES: dict[str, Machine] = {machine.name: machine for machine in (X86_64, AARCH64)}
