"""The last resort: runs code in the very thread that holds the interpreter lock.

It is the only way to run Python while a C call keeps the lock for ever, and it is not safe: the C
code below may have half-changed data, the call that the thread waits in may end early, and
once the code runs there is no way back until it has finished. Never chosen by itself.

Rules of this file: as `thread`, but nothing new is started, and the wait has no end, because a
thread that runs Python code cannot be put back.
"""

from __future__ import annotations

import os

from .borrowing.memory import PAGE, Interpreter
from .borrowing.remote_call import Errand, machine_of, send
from .borrowing.spare import room_for_code
from .borrowing.victims import choose, waiting_threads
from .refusal import CannotInject
from .thread import python_call

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
    stub = room_for_code(interpreter, machine.stub.code)
    payload, size = python_call(interpreter, code)
    errand = Errand(
        function=stub + machine.stub.here,
        argument=0,
        then=stub + machine.stub.nothing,
        payload=payload,
        data_size=size,
        map_size=size + PAGE,
        on_own_stack=True,  # Python may compare the stack pointer with the thread's limits
    )
    done = send(interpreter, thread_id, errand, timeout_s=_FOREVER_S)
    if done.result:
        raise CannotInject(f"it has no memory for the code ({os.strerror(abs(done.result))})")
