"""A thread for one query, so that its caller can always go on.

Rules of this file: whatever may block runs on the session's own thread; the caller waits for
it no longer than the budget lets it, and is open to Ctrl-C meanwhile. Time in which the caller
does not wait, because it consumes what it has got, is not counted. Nothing here knows SQL.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from ..errors import QueryTimedOut
from ..safety.side_threads import at_end, is_ending, start_aside

T = TypeVar("T")

STOP_S = 1.0
"""How long an interrupted step may take to end before its thread is left behind."""


_THREAD_NAME = "probing-sql"
_OPEN: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """Runs one step after the other on a thread of its own, within a time budget.

    Args:
        timeout_s: What all steps together may take.
        interrupt: Makes the running step end soon; called from other threads, repeatedly.
        release: Lets go of what the steps have built up; the last thing that the thread runs.

    Raises:
        QueryTimedOut: The interpreter is about to end.
    """

    def __init__(
        self, timeout_s: float, *, interrupt: Callable[[], None], release: Callable[[], None]
    ) -> None:
        if is_ending():
            raise QueryTimedOut(timeout_s)
        self._timeout_s = timeout_s
        self._left_s = timeout_s
        self._interrupt = interrupt
        self._release: Callable[[], None] | None = release
        self._steps: queue.SimpleQueue[_Step[object] | None] = queue.SimpleQueue()
        self._current: _Step[object] | None = None
        self.is_stuck = False
        self._thread = start_aside(self._run, name=_THREAD_NAME)
        _OPEN.add(self)

    def call(self, function: Callable[[], T]) -> T:
        """Run a step and return what it returns, or raise what it raises.

        Raises:
            QueryTimedOut: The budget ran out first.
        """
        step = _Step(function)
        started = time.monotonic()
        self._submit(step)
        try:
            in_time = step.done.wait(max(0.0, self._left_s))
        except BaseException:
            self._stop(step)
            raise
        finally:
            self._left_s -= time.monotonic() - started
        if not in_time:
            self._stop(step)
            raise QueryTimedOut(self._timeout_s)
        return step.result()

    def close(self) -> None:
        """Interrupt the running step, let go of everything, and end the thread."""
        release, self._release = self._release, None
        if release is None:
            return
        if self._current is not None and not self.is_stuck:
            self._stop(self._current)
        step = _Step(release)
        self._submit(step)
        self._steps.put(None)
        if not self.is_stuck:
            step.done.wait(STOP_S)
            self._thread.join(STOP_S)

    def _submit(self, step: _Step[T]) -> None:
        self._current = step  # type: ignore[assignment]
        self._steps.put(step)  # type: ignore[arg-type]

    def _stop(self, step: _Step[T] | _Step[object]) -> None:
        """Interrupt a step until it ends; one that does not is left to itself.

        Again and again, because an interrupt that comes between two statements is lost.
        """
        until = time.monotonic() + STOP_S
        while not step.done.is_set():
            if time.monotonic() > until:
                self.is_stuck = True
                return
            self._interrupt()
            step.done.wait(0.02)

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            step.run()
            del step  # its result may hold on to what is to be closed


def is_any_stuck() -> bool:
    """Whether a step of this process could not be interrupted, and may still be running."""
    return any(session.is_stuck for session in tuple(_OPEN))


def _close_all() -> None:
    """End what still runs before the interpreter takes modules down under it."""
    for session in tuple(_OPEN):
        session.close()


at_end(_close_all)


class _Step(Generic[T]):
    """One piece of work, and what came of it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._values: list[T] = []
        self._error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Do it; on the session's thread."""
        assert self._function is not None  # a step runs once
        try:
            self._values.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._error = error
        finally:
            self._function = None
            self.done.set()

    def result(self) -> T:
        """What the work returned; raises what it raised."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._values.pop()
