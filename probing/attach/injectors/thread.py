"""The way in called *thread*: a new thread of the process's own runs the code.

A thread that waits in a harmless system call is made to call ``pthread_create``, which takes
milliseconds, and goes on waiting. The new thread waits for the interpreter lock like any other
thread of Python, runs the code, gives its memory back and ends. So the code runs whenever the lock
becomes free, even while the main thread never comes back from C, and does no harm until then.

Rules of this file: says what the errand is; `remote_call` has it done.
"""

from __future__ import annotations

import os
import time

from .borrowing.memory import PAGE, Interpreter
from .borrowing.remote_call import Errand, machine_of, send
from .borrowing.spare import room_for_code
from .borrowing.stubs import ThreadData
from .borrowing.victims import choose, waiting_threads
from .refusal import CannotInject, StillAway, WentOn

_STACK_BYTES = 32 * PAGE
_TRIED_VICTIMS = 3
_PAUSE_S = 0.002
_LOOK_S = 0.3
"""For how long to look for a thread that stays where it waits until it is stopped."""


def inject(interpreter: Interpreter, code: str, *, timeout_s: float = 2.0) -> float:
    """Start a thread in the process that runs the code once it gets the interpreter lock.

    Args:
        timeout_s: How long one borrowed thread may take to start it.

    Returns:
        How long the borrowed thread was away, in seconds.

    Raises:
        CannotInject: It is not possible now; nothing has changed in the process.
        StillAway: It may come late.
    """
    errand = _errand(interpreter, code)
    end = time.monotonic() + _LOOK_S
    reasons: dict[int, str] = {}
    while len(reasons) < _TRIED_VICTIMS and time.monotonic() < end:
        threads = waiting_threads(interpreter.pid)
        victims = choose(threads, machine_of(interpreter), interpreter.maps)
        for thread_id in [number for number in victims if number not in reasons][:_TRIED_VICTIMS]:
            try:
                done = send(interpreter, thread_id, errand, timeout_s=timeout_s)
            except WentOn:
                continue
            except StillAway:  # what it was sent for is yet to come
                raise
            except CannotInject as error:
                reasons[thread_id] = error.reason
                continue
            if done.result == 0:
                return done.held_s
            why = os.strerror(abs(done.result))
            reasons[thread_id] = f"it cannot start another thread ({why})"
        time.sleep(_PAUSE_S)
    nobody = "none of its threads waits in a system call that it can be borrowed from"
    raise CannotInject("; ".join(dict.fromkeys(reasons.values())) or nobody)


def _errand(interpreter: Interpreter, code: str) -> Errand:
    """To start a thread that runs code.

    Raises:
        CannotInject: Something that it takes is not there.
    """
    stub = machine_of(interpreter).stub
    at = room_for_code(interpreter, stub.code)
    payload, size = python_call(interpreter, code)
    return Errand(
        function=interpreter.libc_address("pthread_create"),
        argument=at + stub.body,
        then=interpreter.libc_address("pthread_detach"),
        payload=payload,
        data_size=size,
        map_size=size + _STACK_BYTES,
    )


def python_call(interpreter: Interpreter, code: str) -> tuple[bytes, int]:
    """What `Stub.body` needs to run code, and how much memory it has to give back.

    Raises:
        CannotInject: The interpreter offers no such functions.
    """
    address = interpreter.address
    functions = (
        address("PyGILState_Ensure"),
        address("PyRun_SimpleString"),
        address("PyGILState_Release"),
    )
    size = len(ThreadData(*functions, 0).encode(code))
    size += -size % PAGE
    return ThreadData(*functions, size).encode(code), size
