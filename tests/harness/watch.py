"""Ends a worker of the tests that hangs, and says where it was, so that no run lasts for ever.

Rules of this file: for what no limit inside a worker reaches, be it code in C, a clean-up after a
failure, or a process that is stopped or dead. Each worker writes what it does and how long that may
take; a thread of the process that sees the whole run looks at that. It kills a worker that is
overdue, whose place another takes, and interrupts a run that waits for a worker that is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.warm import own_stack

_LOOK_S = 1.0
_PATIENCE_S = 60.0
"""How long the run may take to see that a worker is dead."""


class Place:
    """Where a worker says what it does, twice a test: over what it has said before."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._file = os.open(folder / f"{worker}.json", os.O_WRONLY | os.O_CREAT, 0o600)
        self._longest = 0

    def say(self, what: str, limit_s: float | None) -> None:
        """Say what this worker does now, and how long it may take; None where nobody can know."""
        until = None if limit_s is None else time.monotonic() + limit_s
        said = json.dumps({"pid": os.getpid(), "what": what, "until": until}).encode()
        self._longest = max(self._longest, len(said))
        os.pwrite(self._file, said.ljust(self._longest), 0)


class Watch:
    """Looks at all workers of a run until it is stopped."""

    def __init__(
        self,
        folder: Path,
        *,
        patience_s: float = _PATIENCE_S,
        interrupt: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGINT),
        tell: Callable[[str], object] = lambda text: print(text, flush=True),
    ) -> None:
        self._folder = folder
        self._patience_s = patience_s
        self._interrupt = interrupt
        self._tell = tell
        self._dead_since: dict[str, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._thread.start()

    def forget(self, worker: str) -> None:
        """Expect nothing of a worker any more: the run knows that it has ended."""
        (self._folder / f"{worker}.json").unlink(missing_ok=True)

    def stop(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(min(_LOOK_S, self._patience_s / 4)):
            for file in self._folder.glob("*.json"):
                try:
                    said = json.loads(file.read_text())
                except (FileNotFoundError, json.JSONDecodeError):
                    continue  # it has ended, or is just saying something else
                self._look_at(file.stem, said["pid"], said["what"], said["until"])

    def _look_at(self, worker: str, pid: int, what: str, until: float | None) -> None:
        now = time.monotonic()
        if is_dead(pid):
            if now > self._dead_since.setdefault(worker, now) + self._patience_s:
                self._tell(f"\n{worker} died in {what}, and something that it forked hides that.")
                self._is_over.set()
                self._interrupt()
        elif until is not None and now > until:
            self._tell(f"\n{worker} hangs in {what} and is ended. It was here:{own_stack(pid)}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def is_dead(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"
