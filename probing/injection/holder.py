"""The last resort: runs code in the very thread that holds the interpreter lock.

It is the only way to run Python while a C call keeps the lock for ever, and it is not safe: the C
code below may have half-changed data, the call that the thread waits in may end early, and
once the code runs there is no way back until it has finished. Never chosen by itself.

Rules of this file: as `thread`, but nothing new is started, and the wait has no end, because a
thread that runs Python code cannot be put back.
"""

from __future__ import annotations

from .memory import Interpreter
from .refusal import CannotInject
from .remote_call import BorrowedThread
from .thread import find_system_call, machine_of
from .victims import choose, waiting_threads

_PAGE = 4096
_RED_ZONE = 256
"""Below the stack pointer, of which leaf functions may use 128."""
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x22
_FOREVER_S = float("inf")


def run_in_holder(interpreter: Interpreter, code: str, *, thread_id: int) -> None:
    """Run code in a thread of the process, and return when it has run.

    Args:
        thread_id: The thread that holds the interpreter lock. Any other would wait for the
            lock, for ever.

    Raises:
        CannotInject: The thread does not wait in a system call that it can be borrowed from.
    """
    machine = machine_of(interpreter)
    threads = [t for t in waiting_threads(interpreter.pid) if t.thread_id == thread_id]
    if not choose(threads, machine, interpreter.maps):
        raise CannotInject(
            f"thread {thread_id}, which holds the interpreter lock, does not wait in a system call"
        )
    ensure = interpreter.address("PyGILState_Ensure")
    run = interpreter.address("PyRun_SimpleString")
    release = interpreter.address("PyGILState_Release")
    text = code.encode() + b"\0"
    system_call_at = find_system_call(interpreter, machine)
    size = (1 + len(text) // _PAGE + 1) * _PAGE
    with BorrowedThread(interpreter.pid, thread_id, machine, system_call_at) as borrowed:
        base = borrowed.system_call(
            machine.mmap, 0, size, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0
        )
        interpreter.memory.write(base, machine.trap)
        interpreter.memory.write(base + _PAGE, text)
        borrowed.system_call(machine.mprotect, base, _PAGE, _READ | _EXECUTE)
        # Its own stack: Python may compare the stack pointer with the thread's limits.
        top = (borrowed.stack_pointer - _RED_ZONE) & ~15
        borrowed.use_stack(interpreter.memory, top=top, trap=base)
        state = borrowed.call(ensure, timeout_s=_FOREVER_S)
        borrowed.call(run, base + _PAGE, timeout_s=_FOREVER_S)
        borrowed.call(release, state & 0xFFFF_FFFF, timeout_s=_FOREVER_S)
        borrowed.system_call(machine.munmap, base, size)
