"""What is called through here may fail as it likes: a fault of ours never reaches the training.

Rules of this file: a hook that raises is counted; after `LIMIT` faults its source is switched
off, and why is kept for `status`. Nothing is printed, nothing is logged through the host. What a
signal's handler raises in the midst of ours is the program's, and reaches it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable

LIMIT = 3

OWN_LOOP = "is_probings"
"""An attribute of our own event loops, by which they are told from the program's."""


def try_each(actions: Iterable[Callable[[], object]]) -> list[str]:
    """Call one after the other, whatever becomes of those before; returns what failed."""
    failed = []
    for action in actions:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a failure of one must not keep the rest from running
            failed.append(f"{type(error).__name__}: {error}")
    return failed


def pass_on() -> None:
    """Raise the exception in hand again where it is the program's and no fault of ours.

    Raises:
        Exception: What a signal's handler has raised.
    """
    from .handlers import is_of_handler

    error = sys.exc_info()[1]
    try:
        if error is not None and is_of_handler(error):
            raise error
    finally:
        del error  # its traceback holds this frame: both would keep what the frames below refer to


class Guard:
    """Counts the faults of one source and switches it off when there are too many.

    Attributes:
        source: Its name.
        on_fault: Called at each fault: what it cost, a row, is counted there.
    """

    def __init__(self, source: str, switch_off: Callable[[], None]) -> None:
        self.source = source
        self._switch_off = switch_off
        self.on_fault: Callable[[], None] | None = None
        self.faults = 0
        self.last = ""

    def fault(self) -> None:
        """Note the exception in hand, unless it is the program's: see `pass_on`."""
        pass_on()
        self.faults += 1
        self.last = traceback.format_exc(limit=-3)
        try:
            if self.on_fault is not None:
                self.on_fault()
            if self.faults == LIMIT:
                self._switch_off()
        except Exception:  # noqa: BLE001 - a fault of ours never reaches the training
            self.faults += 1

    def run(self, action: Callable[..., object], *args: object) -> None:
        """Call something that must not fail the caller; but see `pass_on`."""
        try:
            action(*args)
        except Exception:  # noqa: BLE001 - a fault of ours never reaches the training
            self.fault()

    @property
    def problem(self) -> str | None:
        """One sentence about what went wrong, if anything did."""
        if not self.faults:
            return None
        what = self.last.strip().rsplit("\n", 1)[-1]
        off = "; it is switched off" if self.has_failed else ""
        return f"source {self.source} failed {self.faults} times, last with {what}{off}"

    @property
    def has_failed(self) -> bool:
        """Whether its source has been switched off."""
        return self.faults >= LIMIT
