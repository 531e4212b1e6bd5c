"""The agent's own threads: how one is started, and work that has one to itself.

Rules of this file: what a thread finds or fails with goes to who waits for it, whatever it is;
nothing is raised into the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from ..errors import Busy, NoThread
from .recording.safe_points import AGENT_THREAD_PREFIX

T = TypeVar("T")

_END_S = 2.0
"""How long a job is waited for when the agent goes."""


def start_thread(name: str, body: Callable[..., object], *args: object) -> threading.Thread:
    """Start a thread of the agent's own, which the end of the program does not wait for.

    Raises:
        NoThread: The process may have none more.
    """
    thread = threading.Thread(
        target=body, args=args, name=f"{AGENT_THREAD_PREFIX}{name}", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as error:  # so Python says it, whatever the kernel said
        raise NoThread(str(error)) from None
    return thread


def pending() -> Future[T]:
    """A result to come, which who waits for it cannot cancel."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    return future


def settle(future: Future[T], work: Callable[[], T]) -> None:
    """Do what a future is of."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again where the future is read
        future.set_exception(error)


def in_thread(name: str, work: Callable[[], T]) -> Future[T]:
    """Do what may take long in a thread of its own."""
    future: Future[T] = pending()
    start_thread(name, settle, future, work)
    return future


class ThreadJob(Generic[T]):
    """One request on its way to its answer, in a thread of its own.

    Attributes:
        future: Gets the answer, or an error.
    """

    name = ""
    """What the request is called, and its thread."""

    def __init__(self) -> None:
        self.future: Future[T] = pending()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start its thread."""
        self._thread = start_thread(self.name, self._run)

    def is_over(self) -> bool:
        """Whether nothing of it remains to be done."""
        return self.future.done()

    def cancel(self) -> None:
        """Nobody wants it any more."""

    def close(self) -> None:
        """The agent goes: end it, and wait a little for that."""
        self.cancel()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _work(self) -> T:
        """Find the answer; the body of its thread."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Leave the training as it was; the answer is told already."""

    def _run(self) -> None:
        """The body of its thread."""
        try:
            settle(self.future, self._work)
        finally:
            self._leave()


J = TypeVar("J", bound=ThreadJob)  # type: ignore[type-arg]


class OneAtATime(Generic[J]):
    """The job in hand, where there may be one.

    Attributes:
        job: The one in hand, or the last one.
    """

    def __init__(self) -> None:
        self.job: J | None = None
        self._lock = threading.Lock()

    def begin(self, job: J) -> J:
        """Take one in hand.

        Raises:
            Busy: Another one is.
        """
        with self._lock:
            if self.job is not None and not self.job.is_over():
                raise Busy(job.name, 1)
            job.begin()
            self.job = job
        return job

    def close(self) -> None:
        """End what is in hand."""
        if self.job is not None:
            self.job.close()
