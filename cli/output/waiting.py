"""A sign of life while a command waits: what for, and since when.

Rules of this file: on a terminal's stderr, after half a second without anything else to see there,
on one line that is taken away before anything else is written. A thread draws it; whoever forks
stops it first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

_QUIET_S = 0.5
_AGAIN_S = 0.5


class Waiting:
    """The line, drawn again and again until it is stopped."""

    def __init__(self, show: Callable[[float], object], clear: Callable[[], object]) -> None:
        """Prepare.

        Args:
            show: Draws the line, after so many seconds.
            clear: Takes it away.
        """
        self._show, self._clear = show, clear
        self._began = time.monotonic()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._end.clear()
        thread = threading.Thread(target=self._work, name="waiting", daemon=True)
        with contextlib.suppress(RuntimeError):  # no more threads may be had: it stays away
            thread.start()
            self._thread = thread

    def stop(self) -> None:
        """End, and take the line away."""
        self._end.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None
        self._clear()

    def _work(self) -> None:
        pause_s = _QUIET_S
        while not self._end.wait(pause_s):
            self._show(time.monotonic() - self._began)
            pause_s = _AGAIN_S
