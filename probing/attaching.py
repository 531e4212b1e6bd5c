"""Puts the agent into a process that was never prepared.

Rules of this file: runs at the operator's side. Every obstacle that can be seen is looked for
first; then a helper process injects a script, see `probing.injection`; then the agent is waited
for. The script is in the process's run folder, which both sides know; taking it away takes the
order back.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import process
from .errors import (
    AttachFailed,
    AttachRefused,
    AttachWaiting,
    InternalError,
    NoSuchProcess,
    NotAnswering,
    NotProbed,
    ProbingError,
    UsageError,
)
from .foreign_files import read_file
from .injection.names import AUTO, NAMES
from .injection.script import bootstrap_text, forks_text
from .ladder import who_holds_gil
from .other_user import acting_as
from .ping import ping
from .preflight import OPEN_IT, find_obstacle
from .rundir import ProcessFolder, RunDirectory, directory_of, write_private

_LIMIT_S = 10.0
_PING_S = 1.0
_POLL_S = 0.01
_ANOTHER_HOME = "Make room or a place there for the user of the process, who must be able to write."
_MOST_BYTES = 1 << 20
_NEEDED = ("probing", "aiohttp", "duckdb", "pyarrow", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """What came of `attach`.

    Attributes:
        method: The way the agent came in; None when it was there already.
        seconds: How long it took until it answered.
        held_s: How long a thread of the process, or all of them, stood still, in seconds.
        folder: The process's run folder.
        has_torch: Whether the process has loaded torch.
    """

    pid: int
    method: str | None
    seconds: float
    held_s: float
    folder: ProcessFolder
    has_torch: bool


def attach(pid: int, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
    """Put the agent into a running Python process; does nothing when it is there already.

    Args:
        pid: A process of this machine.
        how: The name of a method of `probing.injection.methods`, or ``auto`` for the best.
        timeout_s: How long the agent may take until it answers; 10 s if not given.

    Raises:
        UsageError: There is no such method.
        NoSuchProcess: There is no such process.
        NoPermission: The kernel does not let this user do it.
        AttachRefused: The process is in a state, or of a kind, in which it cannot be done.
        AttachFailed: No way in was open, or the agent could not start there.
        AttachWaiting: The agent is in, but something keeps it from running.
    """
    if how not in (AUTO, *NAMES):
        raise UsageError(
            f"there is no way in called {how!r}.", help=f"There are {AUTO}, {', '.join(NAMES)}."
        )
    began = time.monotonic()
    started = process.start_time(pid)
    if started is None:
        raise NoSuchProcess(str(pid))
    directory = directory_of(pid)
    folder = directory.folder_for(pid, started)
    if _is_there(folder):
        return _attached(folder, None, began)
    obstacle = find_obstacle(pid)
    if obstacle is not None:
        raise obstacle
    order = _Order(directory, folder)
    if order.is_waiting():
        raise _waiting(pid, "an earlier attach is still waiting there")
    limit_s = timeout_s or _LIMIT_S
    method, held_s = order.send(how, patience_s=limit_s)
    order.wait_agent(method, began + limit_s)
    return _attached(folder, method, began, held_s)


def _attached(
    folder: ProcessFolder, method: str | None, began: float, held_s: float = 0.0
) -> Attached:
    """What came of it, now."""
    return Attached(
        pid=folder.pid,
        method=method,
        seconds=time.monotonic() - began,
        held_s=held_s,
        folder=folder,
        has_torch=process.has_library(folder.pid, "libtorch"),
    )


def _is_there(folder: ProcessFolder) -> bool:
    """Whether an agent is in the process, answering or not."""
    if folder.read_card() is None:
        return False
    try:
        ping(folder, timeout_s=_PING_S)
    except NotProbed:
        return False
    except NotAnswering:
        return True
    return True


class _Order:
    """The script in the run folder that says what is to be done in the process."""

    def __init__(self, directory: RunDirectory, folder: ProcessFolder) -> None:
        self._directory = directory
        self._folder = folder
        self._script = folder.attach_script
        self._failed = folder.path / "attach.py.failed"

    def is_waiting(self) -> bool:
        """Whether an earlier order has been injected and not begun."""
        return self._script.exists()

    def send(self, how: str, *, patience_s: float) -> tuple[str, float]:
        """Inject the script; returns the method by which it was run, and how long it held.

        Raises:
            AttachFailed: No way in was open; the order is taken back.
            AttachWaiting: It was injected and waits for the interpreter lock.
        """
        pid = self._folder.pid
        self._write()
        order = {"pid": pid, "script": str(self._script), "how": how, "patience_s": patience_s}
        outcome = ask_helper(order)
        if outcome["has_run"]:
            return str(outcome["method"]), float(outcome["held_s"])
        if outcome["method"]:
            raise _waiting(pid, "no Python code has run in it since")
        self._tidy()
        if not self._folder.is_alive():
            raise AttachFailed(pid, "it ended meanwhile")
        closed = [f"{name}: {reason}" for name, reason in outcome["attempts"]]
        raise AttachFailed(pid, "; ".join(closed))

    def _write(self) -> None:
        """Put the script in place.

        Raises:
            AttachFailed: That cannot be done with the rights of the process's user.
        """
        pid = self._folder.pid
        text = bootstrap_text(
            {
                "pid": pid,
                "script": str(self._script),
                "home": str(self._folder.path.parent),
                "python": list(sys.version_info[:2]),
                "places": _places(),
                "uid": os.getuid(),
                "operator": os.getpid(),
                "forks": forks_text(),
            }
        )
        with written_as_its_user(pid, self._directory):
            self._directory.create_folder(pid, self._folder.start_time)
            self._failed.unlink(missing_ok=True)
            write_private(self._script, text.encode("ascii"))

    def wait_agent(self, method: str, until: float) -> None:
        """Wait until the agent answers.

        Raises:
            AttachFailed: It could not start, or the process ended.
            AttachWaiting: It does not answer in time.
        """
        pid = self._folder.pid
        while True:
            self._raise_failure()
            if not self._folder.is_alive():
                raise AttachFailed(pid, f"it ended while the agent started (by {method})")
            if self._folder.read_card() is not None and _is_there(self._folder):
                return
            if time.monotonic() > until:
                raise _waiting(pid, "the agent began to start there and has not finished")
            time.sleep(_POLL_S)

    def _raise_failure(self) -> None:
        """Raise what the process says that the agent failed of."""
        try:
            facts = json.loads(read_file(self._failed, _MOST_BYTES))
        except (OSError, ValueError):
            return
        self._tidy()
        raise _failure(self._folder.pid, facts)

    def _tidy(self) -> None:
        """Take the order back; a folder that holds nothing else goes with it."""
        with acting_as(self._directory.user), contextlib.suppress(OSError):
            self._script.unlink(missing_ok=True)
            self._failed.unlink(missing_ok=True)
            self._folder.path.rmdir()


def _failure(pid: int, facts: dict[str, Any]) -> ProbingError:
    """The error for an agent that could not start."""
    python, executable = facts.get("python", "?"), facts.get("executable", "its Python")
    if "refused" in facts:
        return AttachRefused(pid, str(facts["refused"]), help=OPEN_IT)
    if "missing" not in facts:
        return AttachFailed(pid, f"the agent failed to start there ({facts.get('error')})")
    own = ".".join(map(str, sys.version_info[:3]))
    return AttachFailed(
        pid,
        f"{facts['missing']}, and this command runs Python {own}, whose packages Python {python} of"
        " that process cannot use",
        help=f"Install it there, which needs no restart: `{executable} -m pip install"
        " probing-agent`. Or run `probing` from any environment of the same Python version.",
    )


def _waiting(pid: int, why: str) -> AttachWaiting:
    """The error for an agent that is in but cannot run, with the one in its way."""
    return AttachWaiting(pid, who_holds_gil(pid) or why)


@contextlib.contextmanager
def written_as_its_user(pid: int, directory: RunDirectory) -> Iterator[None]:
    """Write into the run directory of a process with the rights of the process's user.

    Raises:
        AttachFailed: It cannot be written to.
    """
    try:
        with acting_as(directory.user):
            yield
    except OSError as error:
        why = f"its run folder in {directory.path} cannot be written ({error.strerror or error})"
        raise AttachFailed(pid, why, help=_ANOTHER_HOME) from None


def ask_helper(order: dict[str, Any]) -> dict[str, Any]:
    """Have the helper process carry out an order; it is never killed, because it may be tracing.

    Raises:
        InternalError: It failed.
    """
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.injection", json.dumps(order)],
        env={**os.environ, "PYTHONPATH": str(root), "PROBING": "0"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().rsplit("\n", 1)[-1]
        raise InternalError(f"the injecting process failed ({last})") from None
    return answer


def _places() -> list[str]:
    """The folders of this Python's that hold what the agent needs."""
    places = []
    for name in _NEEDED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            place = str(Path(spec.origin).parent.parent)
            if place not in places:
                places.append(place)
    return places
