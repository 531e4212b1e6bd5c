"""The way in called *remote_exec*: the interpreter's own interface, from Python 3.14 on (PEP 768).

The path of a script and a mark are written into the main thread's state, and its eval breaker is
raised: what ``sys.remote_exec`` does, but from any version of Python to any other, and with
the process held for a moment, so that none of its own changes to the breaker is lost.

Rules of this file: all offsets are those that the process itself publishes
(``_Py_DebugOffsets``). The process's own choice to forbid this is respected.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from .borrowing.memory import Interpreter
from .borrowing.tracing import all_stopped
from .refusal import CannotInject, SwitchedOff

_PLEASE_STOP = 1 << 5
"""The bit of the eval breaker that sends a thread to its script (``_PY_EVAL_PLEASE_STOP_BIT``)."""
_WORDS = 256
"""As many numbers of 8 bytes as `_Py_DebugOffsets` has at most."""
_PATH_SIZE = 512


class DebugOffsets(NamedTuple):
    """What is needed of ``_Py_DebugOffsets``.

    Attributes:
        finalizing, interpreters: In the runtime: who shuts it down; the first interpreter.
        interpreter_id, interpreter_next, threads, main_thread, enabled: In an interpreter.
        thread_next, thread_interpreter, breaker, pending, path: In a thread state.
    """

    finalizing: int
    interpreters: int
    interpreter_id: int
    interpreter_next: int
    threads: int
    main_thread: int
    enabled: int
    thread_next: int
    thread_interpreter: int
    breaker: int
    pending: int
    path: int


def inject(interpreter: Interpreter, script_path: str) -> None:
    """Have the main thread run a script at its next safe point.

    Args:
        interpreter: Where.
        script_path: As the process sees it, absolute.

    Raises:
        CannotInject: It is not possible now; nothing was changed in the process.
    """
    path = os.fsencode(script_path) + b"\0"
    if len(path) > _PATH_SIZE:
        raise CannotInject(f"the script's path has more than {_PATH_SIZE - 1} bytes")
    memory, offsets = interpreter.memory, read_offsets(interpreter)
    with all_stopped(interpreter.pid):
        thread = _main_thread(interpreter, offsets)
        mark = memory.i32(thread + offsets.pending)
        if mark == 1:
            raise CannotInject("another script waits in it to be run, and there is room for one")
        if mark:
            raise _not_as_expected("mark")
        breaker = memory.u64(thread + offsets.breaker)
        memory.write(thread + offsets.path, path)
        memory.write(thread + offsets.pending, struct.pack("<i", 1))
        memory.write(thread + offsets.breaker, struct.pack("<Q", breaker | _PLEASE_STOP))


def cancel(interpreter: Interpreter, script_path: str) -> bool:
    """Take a script back that waits to be run.

    Returns:
        Whether it was still there, and so never runs.

    Raises:
        CannotInject: The process has ended, or cannot be stopped.
    """
    memory, offsets = interpreter.memory, read_offsets(interpreter)
    path = os.fsencode(script_path) + b"\0"
    with all_stopped(interpreter.pid):
        thread = _main_thread(interpreter, offsets)
        waits = memory.i32(thread + offsets.pending) == 1
        if not waits or memory.read(thread + offsets.path, len(path)) != path:
            return False
        memory.write(thread + offsets.pending, bytes(4))
        memory.write(thread + offsets.path, bytes(len(path)))
    return True


def read_offsets(interpreter: Interpreter) -> DebugOffsets:
    """The offsets that the process publishes.

    Raises:
        CannotInject: It is too old to, or what it publishes makes no sense.
    """
    if interpreter.version < (3, 14):
        raise CannotInject(f"Python {interpreter.release} has no interface for it; 3.14 has")
    at = interpreter.address("_PyRuntime")
    data = interpreter.memory.read(at, 8 * _WORDS)
    if not data.startswith(b"xdebugpy"):
        raise _not_as_expected("cookie")
    return decode_offsets(struct.unpack(f"<{_WORDS}Q", data))


def decode_offsets(words: tuple[int, ...]) -> DebugOffsets:
    """The offsets in the table's numbers, the cookie being the first.

    The first groups have been where they are since 3.14. The last, about this interface,
    moves as others grow; it is known by the size of the path's buffer that ends it.

    Raises:
        CannotInject: They make no sense.
    """
    finalizing, interpreters = words[4:6]
    interpreter_size, interpreter_id, interpreter_next, threads, main_thread = words[6:11]
    # The interpreters' group has 16 numbers; behind it the threads' begins: size, prev, next.
    thread_size, _, thread_next, thread_interpreter = words[22:26]
    wanted = (0, 4, _PATH_SIZE)
    ends = [at for at in range(26, len(words) - 2) if words[at : at + 3] == wanted]
    if len(ends) != 1:
        raise _not_as_expected("table")
    breaker, support, enabled, pending, path, _ = words[ends[0] - 3 : ends[0] + 3]
    in_thread = (thread_next, thread_interpreter, breaker, support + path + _PATH_SIZE - 8)
    in_interpreter = (interpreter_id, interpreter_next, threads, main_thread, enabled)
    if max(in_thread) + 8 > thread_size or max(in_interpreter) + 4 > interpreter_size:
        raise _not_as_expected("table")
    return DebugOffsets(
        finalizing=finalizing,
        interpreters=interpreters,
        interpreter_id=interpreter_id,
        interpreter_next=interpreter_next,
        threads=threads,
        main_thread=main_thread,
        enabled=enabled,
        thread_next=thread_next,
        thread_interpreter=thread_interpreter,
        breaker=breaker,
        pending=support + pending,
        path=support + path,
    )


def _main_thread(interpreter: Interpreter, offsets: DebugOffsets) -> int:
    """The state of the main thread of the main interpreter.

    Raises:
        CannotInject: There is none, or it may not be sent a script.
    """
    memory, runtime = interpreter.memory, interpreter.address("_PyRuntime")
    if memory.u64(runtime + offsets.finalizing):
        raise CannotInject("its Python is shutting down")
    newest = memory.u64(runtime + offsets.interpreters)
    found = memory.chain(newest, offsets.interpreter_next)
    main = next((at for at in found if memory.u64(at + offsets.interpreter_id) == 0), None)
    if main is None:
        raise CannotInject("its main interpreter is not there yet, or no longer")
    if memory.i32(main + offsets.enabled) != 1:
        raise SwitchedOff(
            "remote debugging is switched off in it"
            " (PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug)"
        )
    thread = memory.u64(main + offsets.main_thread)
    threads = memory.chain(memory.u64(main + offsets.threads), offsets.thread_next)
    if thread not in threads or memory.u64(thread + offsets.thread_interpreter) != main:
        raise CannotInject("its main thread runs no Python")
    return thread


def _not_as_expected(what: str) -> CannotInject:
    return CannotInject(f"what its Python says about remote debugging makes no sense ({what})")
