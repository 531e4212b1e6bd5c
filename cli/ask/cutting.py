"""Ctrl-C as the end of rows: those that have come are written whole.

Rules of this file: a wait ends at once, what is being written ends as it would have, so that it can
be read; a second Ctrl-C ends everything.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TypeVar

from ...cluster.job.interruption import ends_the_wait
from .shield import is_heard_again

T = TypeVar("T")


def as_far_as_they_come(things: Iterable[T]) -> Iterator[T]:
    """The same; Ctrl-C is their end, where what has come may be shown."""
    if threading.current_thread() is not threading.main_thread():
        yield from things
        return
    cut = _Cut()
    before = signal.signal(signal.SIGINT, cut.hear)
    try:
        yield from cut.until_heard(iter(things))
    finally:
        signal.signal(signal.SIGINT, before)


class _Cut:
    """Hears Ctrl-C."""

    def __init__(self) -> None:
        self._is_heard = self._is_waiting = False

    def until_heard(self, things: Iterator[T]) -> Iterator[T]:
        """As many as come before that."""
        while not self._is_over():
            self._is_waiting = True
            try:
                thing = next(things, self)
            except KeyboardInterrupt:
                if not self._is_over():
                    raise
                return
            finally:
                self._is_waiting = False
            if thing is self:
                return
            yield thing  # type: ignore[misc]

    def _is_over(self) -> bool:
        return self._is_heard

    def hear(self, _: int, __: FrameType | None) -> None:
        """The handler of the signal."""
        if is_heard_again():
            return
        is_second = self._is_heard
        self._is_heard = not is_second and ends_the_wait()
        if self._is_waiting or not self._is_heard:
            raise KeyboardInterrupt
