"""The end that SIGTERM asks for: what goes on and on makes one more round, and loses nothing.

Rules of this file: for the main thread of a command. A round that is under way is not interrupted.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal


class Ending:
    """Waits between rounds, and knows whether SIGTERM has come.

    Attributes:
        is_asked: Whether the next round is the last.
    """

    def __init__(self) -> None:
        """Know of nothing; `with` begins."""
        self.is_asked = False

    def __enter__(self) -> Ending:  # noqa: PYI034 - `Self` is newer than Python 3.10
        """Take the signal from here on."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Have the signal do what it did before."""
        signal.signal(signal.SIGTERM, self._before)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, limit_s: float) -> None:
        """Wait so long, or until the signal comes; not at all where it has."""
        select.select([self._reader], [], [], max(0.0, limit_s))

    def _note(self, *_: object) -> None:
        self.is_asked = True
        with contextlib.suppress(BlockingIOError):  # there is more than enough in it
            os.write(self._writer, b"1")
