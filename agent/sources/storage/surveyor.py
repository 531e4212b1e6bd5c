"""Has surveys of old objects made, all by one thread.

Rules of this file: a survey lists every object of the process once, some megabytes in a job of the
usual size. The C library gives each thread a heap of its own and keeps what was freed in it, so a
thread for each survey would leave those megabytes behind in one heap after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from ...agent_threads import pending, settle, start_thread
from ..shared.recording import Recording
from .living import Survey
from .storages import survey_now

T = TypeVar("T")
_Wanted: TypeAlias = "SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]"


class Surveyor:
    """The thread that makes surveys, from the first one that is asked for on.

    It does other work of the kind, too.
    """

    def __init__(self) -> None:
        self._wanted: _Wanted = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def survey(self) -> Future[Survey]:
        """Have a survey made, beside whatever the caller does meanwhile."""
        return self.begin(survey_now)

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Have something done in the thread, after what was asked for before."""
        future: Future[T] = pending()
        with self._lock:
            if self._thread is None:
                self._thread = start_thread("survey", _work, self._wanted)
            self._wanted.put((future, work))
        return future

    def close(self) -> None:
        """Let the thread end once what was asked for before is made."""
        with self._lock:
            if self._thread is not None:
                self._wanted.put(None)
                self._thread = None


def surveyor_of(recording: Recording) -> Surveyor:
    """Who makes the surveys in a process; made when first asked for."""
    surveyor = recording.looks.surveyor
    if not isinstance(surveyor, Surveyor):
        surveyor = recording.looks.surveyor = Surveyor()
    return surveyor


def _work(wanted: _Wanted) -> None:
    """The body of the thread."""
    while (asked := wanted.get()) is not None:
        future, work = asked
        settle(future, work)
        del asked, future, work  # until the next is wanted nothing refers to the result from here
