"""The ways into a process, each declared once, and the order in which they are tried.

Rules of this file: a way says why it is closed before anything is changed. Whether the code has
run is seen by its script: it removes itself first thing. What was injected and has not run
yet is left to wait, which is harmless; but from the interpreter's single slot for scripts it is
taken back, because the next way may be open at once.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from . import pending, remote_exec, thread
from .memory import Interpreter, find_interpreter
from .names import AUTO, PENDING, REMOTE_EXEC, THREAD
from .refusal import CannotInject, SwitchedOff
from .script import injected_code
from .tracing import let_late_ones_go

_SLOT_S = 0.5
_RETRY_S = 2.0
_POLL_S = 0.002
_PAUSE_S = 0.05


class Placed(NamedTuple):
    """What was injected and may not have run yet.

    Attributes:
        held_s: How long a thread of the process, or all of them, stood still; in seconds.
        take_back: Undoes it; None where it may wait for ever.
        clean_up: Removes what is left of it once it has run.
    """

    held_s: float
    take_back: Callable[[], object] | None = None
    clean_up: Callable[[], object] | None = None


class Method(NamedTuple):
    """One way in.

    Attributes:
        name: What the user calls it.
        doc: One sentence about it.
        inject: Injects a script, by its path.
    """

    name: str
    doc: str
    inject: Callable[[Interpreter, str], Placed]


class Outcome(NamedTuple):
    """What came of it.

    Attributes:
        method: The way that the script got in; None when none was open.
        has_run: Whether the script has run. If not, it waits for the interpreter lock.
        held_s: How long a thread of the process, or all of them, stood still; in seconds.
        attempts: The ways that were closed, each with the reason.
    """

    method: str | None
    has_run: bool
    held_s: float
    attempts: tuple[tuple[str, str], ...]


def _by_remote_exec(interpreter: Interpreter, script: str) -> Placed:
    began = time.monotonic()
    remote_exec.inject(interpreter, script)
    return Placed(
        held_s=time.monotonic() - began,
        take_back=lambda: remote_exec.cancel(interpreter, script),
    )


def _by_thread(interpreter: Interpreter, script: str) -> Placed:
    return Placed(thread.inject(interpreter, injected_code(script)))


def _by_pending(interpreter: Interpreter, script: str) -> Placed:
    # From 3.12 on there is a queue that any thread takes from, the main thread among them.
    any_thread = interpreter.version >= (3, 12)
    call = pending.inject(interpreter, injected_code(script), any_thread=any_thread)
    return Placed(call.held_s, clean_up=call.wipe)


METHODS: tuple[Method, ...] = (
    Method(
        name=REMOTE_EXEC,
        doc="The interpreter's own way, Python 3.14 and newer: the main thread runs a script at its"
        " next safe point.",
        inject=_by_remote_exec,
    ),
    Method(
        name=THREAD,
        doc="A thread that waits in a system call is borrowed to start a new one, which runs the"
        " code as soon as the interpreter lock is free.",
        inject=_by_thread,
    ),
    Method(
        name=PENDING,
        doc="The code is put into the interpreter's own queue of calls, Python 3.10 to 3.13, and"
        " run at a safe point.",
        inject=_by_pending,
    ),
)
"""In the order in which `AUTO` tries them."""


def inject(pid: int, script: str, *, how: str = AUTO, patience_s: float = 5.0) -> Outcome:
    """Bring a script into a process and wait until it has run.

    Args:
        how: The name of a method, or ``auto``.
        patience_s: How long to wait for it to run.
    """
    attempts: dict[str, str] = {}
    chosen = [m for m in METHODS if how in (AUTO, m.name)]
    try:
        with contextlib.closing(find_interpreter(pid)) as interpreter:
            _require_supported(interpreter)
            end = time.monotonic() + _RETRY_S
            while True:
                for method in chosen:
                    outcome = _try(method, interpreter, script, attempts, patience_s)
                    if outcome is not None:
                        return outcome
                # A thread that can be borrowed may be there in a moment.
                if time.monotonic() > end:
                    break
                time.sleep(_PAUSE_S)
    except CannotInject as error:
        attempts[how] = error.reason
    return Outcome(None, has_run=False, held_s=0.0, attempts=tuple(attempts.items()))


def _require_supported(interpreter: Interpreter) -> None:
    """Refuse what the agent itself could not live in."""
    if interpreter.is_free_threaded:
        raise CannotInject(
            "it runs a free-threaded build of Python, and the recorder relies on the interpreter"
            " lock"
        )


def _try(
    method: Method,
    interpreter: Interpreter,
    script: str,
    attempts: dict[str, str],
    patience_s: float,
) -> Outcome | None:
    """Try one way; None when it is closed, with the reason in `attempts`.

    Raises:
        SwitchedOff: It is not to be got round by another way.
    """
    let_late_ones_go()
    try:
        placed = method.inject(interpreter, script)
    except SwitchedOff:
        raise
    except CannotInject as error:
        attempts[method.name] = error.reason
        return None
    limit = patience_s if placed.take_back is None else min(patience_s, _SLOT_S)
    has_run = _wait_gone(script, interpreter.pid, limit)
    if not has_run and placed.take_back is not None:
        placed.take_back()
        has_run = not os.path.exists(script)  # it may have run in the last moment
        if not has_run:
            attempts[method.name] = f"its main thread reached no safe point within {limit:g} s"
            return None
    if has_run and placed.clean_up is not None:
        placed.clean_up()
    return Outcome(method.name, has_run, placed.held_s, tuple(attempts.items()))


def _wait_gone(script: str, pid: int, timeout_s: float) -> bool:
    """Wait until the script has removed itself, or the process is gone."""
    end = time.monotonic() + timeout_s
    while os.path.exists(script):
        let_late_ones_go()
        if time.monotonic() > end or not os.path.exists(f"/proc/{pid}"):
            return False
        time.sleep(_POLL_S)
    return True
