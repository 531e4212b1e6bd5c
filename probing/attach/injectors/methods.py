"""The ways into a process, each declared once, and the order in which they are tried.

Rules of this file: a way says why it is closed before anything is changed. Whether the code has
begun is seen by its script: it takes that away first thing. What was injected and has not begun
is left to wait, which is harmless, and no reason not to try another way: whichever comes first
takes the script. But from the interpreter's single slot for scripts it is taken back.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import pending, remote_exec, thread
from .borrowing.memory import Interpreter, find_interpreter
from .borrowing.tracing import let_late_ones_go
from .injected.script import injected_code
from .layouts import LAYOUTS
from .names import AUTO, PENDING, REMOTE_EXEC, THREAD
from .refusal import CannotInject, SwitchedOff
from .remote_exec import read_offsets

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
        is_taken: Whether it was run, or is about to be.
    """

    held_s: float
    take_back: Callable[[], object] | None = None
    clean_up: Callable[[], object] | None = None
    is_taken: Callable[[], bool] | None = None


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
        has_run: Whether the script has begun, or was to and could not. If not, it waits.
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
    return Placed(thread.inject(interpreter, injected_code(script, is_telling=True)))


def _by_pending(interpreter: Interpreter, script: str) -> Placed:
    # From 3.12 on there is a queue that any thread takes from, the main thread among them.
    any_thread = interpreter.version >= (3, 12)
    call = pending.inject(interpreter, injected_code(script), any_thread=any_thread)
    return Placed(call.held_s, clean_up=call.wipe, is_taken=call.is_taken)


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


def inject(
    pid: int,
    script: str,
    *,
    how: str = AUTO,
    patience_s: float = 5.0,
    tell: Callable[[str], object] = lambda _: None,
) -> Outcome:
    """Bring a script into a process and wait until it has begun.

    Args:
        how: The name of a method, or ``auto``.
        patience_s: How long to wait for it to begin.
        tell: Called with the name of each way by which it was injected.
    """
    attempts: dict[str, str] = {}
    try:
        with contextlib.closing(find_interpreter(pid)) as interpreter:
            _require_supported(interpreter)
            require_running(interpreter)
            injection = _Injection(interpreter, script, patience_s, attempts, tell)
            outcome = injection.run([m for m in METHODS if how in (AUTO, m.name)])
            if not outcome.has_run:
                require_running(interpreter)
            return outcome
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


class _Injection:
    """One script on its way into a process, by one way and, where that leads nowhere, by others."""

    def __init__(
        self,
        interpreter: Interpreter,
        script: str,
        patience_s: float,
        attempts: dict[str, str],
        tell: Callable[[str], object],
    ) -> None:
        self._interpreter = interpreter
        self._script = script
        self._until = time.monotonic() + patience_s
        self._attempts = attempts
        self._tell = tell
        self._placed: dict[str, Placed] = {}

    def run(self, methods: Sequence[Method]) -> Outcome:
        """Try the ways, again and again while they are closed, and wait.

        Raises:
            SwitchedOff: The process wants nobody in it, by whatever way.
        """
        # A thread that can be borrowed may be there in a moment.
        open_until = min(self._until, time.monotonic() + _RETRY_S)
        has_run = False
        while not has_run and time.monotonic() < (self._until if self._placed else open_until):
            for method in methods:
                # A thread of its own begins as soon as anything can.
                if has_run or THREAD in self._placed or method.name in self._placed:
                    continue
                has_run = self._try(method)
            has_run = has_run or self._wait_begun(_PAUSE_S)
        return self._outcome(has_run=has_run)

    def _outcome(self, *, has_run: bool) -> Outcome:
        """What came of it."""
        if has_run:
            for placed in self._placed.values():
                if placed.clean_up is not None:
                    placed.clean_up()
        held_s = sum(placed.held_s for placed in self._placed.values())
        names = list(self._placed)
        if not has_run:
            names = [name for name in names if not self._has_failed(name)]
        return Outcome(names[-1] if names else None, has_run, held_s, tuple(self._attempts.items()))

    def _try(self, method: Method) -> bool:
        """Try one way; whether the script has begun. Why it has not is in the attempts."""
        let_late_ones_go()
        try:
            placed = method.inject(self._interpreter, self._script)
        except SwitchedOff:
            raise
        except CannotInject as error:
            self._attempts[method.name] = error.reason
            return False
        self._tell(method.name)
        has_begun = self._wait_begun(_SLOT_S)
        if not has_begun and placed.take_back is not None:
            placed.take_back()
            has_begun = self._wait_begun(0.0)  # it may have begun in the last moment
            if not has_begun:
                self._attempts[method.name] = (
                    f"its main thread reached no safe point within {_SLOT_S:g} s"
                )
                return False
        self._placed[method.name] = placed
        return has_begun

    def _has_failed(self, name: str) -> bool:
        """Whether code was run, and has not taken its script."""
        is_taken = self._placed[name].is_taken
        if is_taken is None or not is_taken():
            return False
        self._attempts[name] = (
            "its code was run there and kept from opening its script: by an audit hook of the"
            " process, or because it may open no more files"
        )
        return True

    def _wait_begun(self, timeout_s: float) -> bool:
        """Wait until the script was taken, or word was left why it could not be."""
        end = min(self._until, time.monotonic() + timeout_s)
        while os.path.exists(self._script) and not os.path.lexists(f"{self._script}.failed"):
            let_late_ones_go()
            if time.monotonic() >= end or not os.path.exists(f"/proc/{self._interpreter.pid}"):
                return False
            time.sleep(_POLL_S)
        return True


def require_running(interpreter: Interpreter) -> None:
    """Make sure that a process is not about to end: then threads get the interpreter lock no more.

    Raises:
        CannotInject: It is. Of a Python whose layout is not known that cannot be told.
    """
    finalizing = None
    if interpreter.version in LAYOUTS:
        finalizing = LAYOUTS[interpreter.version].finalizing
    else:
        with contextlib.suppress(CannotInject):
            finalizing = read_offsets(interpreter).finalizing
    runtime = interpreter.address("_PyRuntime")
    if finalizing is not None and interpreter.memory.u64(runtime + finalizing):
        raise CannotInject("its Python is shutting down")
