"""A source that looks regularly, from a thread of the agent's own.

Rules of this file: knows nothing of what is looked at. The thread ends with `stop`, and is waited
for a limited time: what it looks at may keep it waiting.
"""

from __future__ import annotations

import threading

from ...safety.guard import Guard
from ..agent_threads import start_thread
from .stand_in import PlainSource

_END_S = 1.0


class RegularLooks(PlainSource):
    """A source that looks regularly; each look is `_look`.

    Attributes:
        is_on: Whether it records.
        guard: Counts the looks that failed.
    """

    def __init__(self, source: str, thread: str) -> None:
        """Begin without looking; `thread` is what its thread is called."""
        self.is_on = False
        self._name = thread
        self._enough = threading.Event()
        self._thread: threading.Thread | None = None
        self.guard = Guard(source, self.stop)

    def stop(self) -> None:
        """Look no more."""
        self.is_on = False
        thread, self._thread = self._thread, None
        self._enough.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_S)

    def _begin(self, interval_s: float, *, first_s: float) -> None:
        """Look from now on, for the first time after `first_s`; unless that has begun."""
        if self._thread is None:
            self._enough = threading.Event()
            self._thread = start_thread(self._name, self._run, first_s, interval_s, self._enough)

    def _run(self, wait_s: float, interval_s: float, enough: threading.Event) -> None:
        """Look until it is enough."""
        while not enough.wait(wait_s):
            self.guard.run(self._look)
            wait_s = interval_s

    def _look(self) -> None:
        raise NotImplementedError
