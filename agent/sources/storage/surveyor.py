"""Has surveys of old objects made, all by one thread.

Rules of this file: a survey lists every object of the process once, some megabytes in a job of the
usual size. The C library gives each thread a heap of its own and keeps what was freed in it, so a
thread for each survey would leave those megabytes behind in one heap after another.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from ...safe_points import AGENT_THREAD_PREFIX
from .living import Survey
from .storages import survey_now

_Wanted = SimpleQueue["Future[Survey] | None"]


class Surveyor:
    """The thread that makes surveys, from the first one that is asked for on."""

    def __init__(self) -> None:
        self._wanted: _Wanted = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self) -> Future[Survey]:
        """Have a survey made, beside whatever the caller does meanwhile."""
        future: Future[Survey] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._thread is None:
                name = f"{AGENT_THREAD_PREFIX}survey"
                thread = threading.Thread(
                    target=_work, args=(self._wanted,), name=name, daemon=True
                )
                thread.start()
                self._thread = thread
            self._wanted.put(future)
        return future

    def close(self) -> None:
        """Let the thread end once what was asked for before is made."""
        with self._lock:
            if self._thread is not None:
                self._wanted.put(None)
                self._thread = None


def surveyor_of(recording: Any) -> Surveyor:
    """Who makes the surveys in a process; made when first asked for."""
    if recording.surveyor is None:
        recording.surveyor = Surveyor()
    surveyor: Surveyor = recording.surveyor
    return surveyor


def _work(wanted: _Wanted) -> None:
    """The body of the thread."""
    while (future := wanted.get()) is not None:
        try:
            future.set_result(survey_now())
        except BaseException as error:  # noqa: BLE001 - raised again where the future is read
            future.set_exception(error)
        del future  # until the next one is wanted nothing refers to the survey from here
