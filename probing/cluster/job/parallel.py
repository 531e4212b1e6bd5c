"""Many small waits at once, with one end for all of them.

Rules of this file: threads aside, so that one that hangs keeps nobody from leaving; what has not
ended at the deadline is left behind, and said to be so. Once the interpreter is about to end,
nothing more is begun.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from ...messages.frozen import dataclass
from ...safety.side_threads import is_ending, start_aside
from .interruption import ends_the_wait

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[T]):
    """How one task ended.

    Attributes:
        value: What it gave; None where it failed.
        error: What it raised; None where it did not.
        seconds: How long it took.
    """

    value: T | None
    error: Exception | None
    seconds: float


class _Work(Generic[T]):
    """Tasks in hand, shared by the threads that do them."""

    def __init__(self, tasks: Sequence[Callable[[], T]]) -> None:
        self.changed = threading.Condition()
        self.results: list[Done[T] | None] = [None] * len(tasks)
        self.open = len(tasks)
        self._waiting: Iterator[tuple[int, Callable[[], T]]] = iter(enumerate(tasks))
        self._is_over = False

    def do_some(self) -> None:
        """The body of each thread: one task after the other, until there are no more."""
        while True:
            with self.changed:
                is_over = self._is_over or is_ending()
                entry = None if is_over else next(self._waiting, None)
            if entry is None:
                return
            index, task = entry
            result = done_of(task)
            with self.changed:
                self.results[index] = result
                self.open -= 1
                if not self.open:  # who waits is not woken for each of thousands
                    self.changed.notify_all()

    def wait(self, deadline: float) -> list[Done[T] | None]:
        """The results at the end, at the deadline or at Ctrl-C; None for what has none."""
        with self.changed:
            try:
                while self.open and (left_s := deadline - time.monotonic()) > 0:
                    self.changed.wait(left_s)
            except KeyboardInterrupt:
                if not ends_the_wait():
                    raise
            self._is_over = True
            return list(self.results)


def run_at_once(
    tasks: Sequence[Callable[[], T]], *, timeout_s: float, at_once: int
) -> list[Done[T] | None]:
    """Do all tasks, so many at a time; None for what has not ended after `timeout_s`."""
    work = _Work(tasks)
    deadline = time.monotonic() + timeout_s
    for number in range(min(at_once, len(tasks))):
        start_aside(work.do_some, name=f"ask {number}")
    return work.wait(deadline)


def begin_aside(task: Callable[[], T], *, name: str) -> Callable[[], T]:
    """Begin one task beside the caller, which does not wait for it if it leaves by Ctrl-C.

    Returns:
        What waits for its end, and gives or raises what it did.
    """
    ends: queue.SimpleQueue[Done[T]] = queue.SimpleQueue()
    start_aside(lambda: ends.put(done_of(task)), name=name)

    def result() -> T:
        done = ends.get()
        if done.error is not None:
            raise done.error
        return cast("T", done.value)  # which may be None

    return result


def done_of(task: Callable[[], T]) -> Done[T]:
    """Do one task here and now."""
    started = time.monotonic()
    try:
        value = task()
    except Exception as error:  # noqa: BLE001 - handed to whoever waits for the results
        return Done(value=None, error=error, seconds=time.monotonic() - started)
    return Done(value=value, error=None, seconds=time.monotonic() - started)
