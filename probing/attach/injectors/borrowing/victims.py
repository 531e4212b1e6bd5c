"""Which threads of a process can be borrowed for a moment.

Rules of this file: reads and decides; stops nobody. A thread is borrowed only while it waits in a
system call for the outside world: it can then hold no lock of the memory allocator, and what it
is made to do meanwhile cannot find its own work half done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ....linux import process
from ..refusal import CannotInject, WentOn
from .machines import Machine
from .memory import Interpreter, Mapping
from .stubs import UNFINISHED
from .tracing import TracedThread, thread_ids

_LIBC_OR_ALLOCATOR = re.compile(r"/(libc[.-]|ld-|libpthread|libjemalloc|libtcmalloc|libmimalloc)")
_ARENA_BYTES = 64 << 20
_ARENA_HEAD_BYTES = 2048
"""glibc's further arenas begin at multiples of 64 MiB, each with its lock. An arena's own record
takes some more than that; behind it comes what the program has asked for, locks among it."""


class Waiting(NamedTuple):
    """A thread in a system call.

    Attributes:
        state: The kernel's letter for its state.
        number: Of the system call; -1 when it runs or is elsewhere in the kernel.
        first: The first argument of the call.
    """

    thread_id: int
    state: str
    number: int
    first: int


def choose(threads: Sequence[Waiting], machine: Machine, maps: Sequence[Mapping]) -> list[int]:
    """The threads that can be borrowed, best first.

    A new thread inherits its maker's processor affinity, so the main thread comes first: it
    has the lowest number.
    """
    return sorted(
        thread.thread_id
        for thread in threads
        if thread.state == "S"
        and thread.number in machine.harmless_calls
        and not (thread.number == machine.futex and _is_allocator_lock(thread.first, maps))
    )


def waiting_threads(pid: int) -> list[Waiting]:
    """Every thread of a process, with the system call that it is in.

    Raises:
        CannotInject: The process is gone.
    """
    found = [waiting_thread(pid, number) for number in thread_ids(pid)]
    return [waiting for waiting in found if waiting is not None]


def waiting_thread(pid: int, number: int) -> Waiting | None:
    """A thread of a process, with the system call that it is in; None where that is not told."""
    task = Path(f"/proc/{pid}/task/{number}")
    try:
        words = (task / "syscall").read_text("ascii").split()
        state = (task / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:  # it ended meanwhile, or may not be looked at
        return None
    if len(words) > 2:
        return Waiting(number, state, int(words[0]), int(words[1], 16))
    return Waiting(number, state, -1, 0)


def require_waiting(
    thread: TracedThread, registers: dict[str, int], machine: Machine, interpreter: Interpreter
) -> None:
    """Make sure, now that it stands still, that a thread can be borrowed: it may have gone on.

    Raises:
        CannotInject: It cannot.
    """
    number = thread.thread_id
    if thread.signal:
        raise WentOn(f"thread {number} was about to handle a signal")
    if not _is_in_call(registers, machine, interpreter):
        raise WentOn(f"thread {number} went on meanwhile")
    waiting = Waiting(number, "S", registers[machine.call], registers[machine.first])
    if not choose([waiting], machine, interpreter.maps):
        raise WentOn(f"thread {number} went on meanwhile")
    if "shstk" in process.status(number).get("x86_Thread_features", ""):
        raise CannotInject(f"thread {number} has a shadow stack")


def sleeps_on(registers: dict[str, int], machine: Machine, interpreter: Interpreter) -> bool:
    """Whether a thread that was seen asleep at a lock has been stopped there: it has not got it."""
    if registers[machine.call] != machine.futex:
        return False
    if not machine.call_instruction:
        return registers[machine.result] in UNFINISHED
    at, size = registers[machine.program], len(machine.call_instruction)
    return interpreter.memory.read(at, size) == machine.call_instruction


def _is_in_call(registers: dict[str, int], machine: Machine, interpreter: Interpreter) -> bool:
    """Whether a thread stands at a system call, which is to be made once more or has just ended."""
    if not machine.call_instruction:
        return registers[machine.call] >> 63 == 0
    at, size = registers[machine.program], len(machine.call_instruction)
    return machine.call_instruction in (
        interpreter.memory.read(at, size),
        interpreter.memory.read(at - size, size),
    )


def _is_allocator_lock(address: int, maps: Sequence[Mapping]) -> bool:
    """Whether a lock that a thread waits for may be the memory allocator's or the C library's."""
    if address % _ARENA_BYTES < _ARENA_HEAD_BYTES:
        return True
    return any(
        entry.start <= address < entry.end
        and "w" in entry.perms
        and _LIBC_OR_ALLOCATOR.search(entry.path)
        for entry in maps
    )
