"""Puts the agent into a process that was never prepared.

Rules of this file: runs at the operator's side. Every obstacle that can be seen is looked for
first; then a helper process injects a script, see `probing.attach.injectors`; then the agent is
waited for. How far that is stands in the process's run folder, see `probing.rundir.attach_order`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import (
    AttachFailed,
    AttachRefused,
    AttachWaiting,
    ConnectionLost,
    InternalError,
    NoSuchProcess,
    NotAnswering,
    NotProbed,
    ProbingError,
    UsageError,
)
from ..linux import process
from ..linux.other_user import acting_as
from ..messages.frozen import dataclass
from ..messages.limits import start_s
from ..own_files import places_of
from ..reach.endpoint import Local, resolve
from ..reach.ladder import look_at_gil, who_holds_gil
from ..reach.ping import ping
from ..rundir.attach_order import Attach, AttachFiles, Note
from ..rundir.folders import ProcessFolder, RunDirectory, directory_of
from .injectors.injected.script import bootstrap_text, forks_text
from .injectors.names import AUTO, NAMES, PENDING, THREAD
from .preflight import OPEN_IT, find_obstacle

_LIMIT_S = 10.0
_PING_S = 1.0
_POLL_S = 0.01
_ONCE_FREE = (
    "It starts by itself once the lock is free, and does nothing until then. `backtrace` shows now"
    " what the process is doing."
)
_GOES_ON = (
    "It goes on starting: ask in a moment, or give it longer with --timeout SECONDS. `backtrace`"
    " shows now what the process is doing."
)
_ANOTHER_WAY = (
    "It starts by itself once that is so. Another way can be taken all the same: `--method`."
)
_ANOTHER_HOME = "Make room or a place there for the user of the process, who must be able to write."
_STARTING_S = 30.0
"""An agent that began to start longer ago is no longer waited for; a second one is none."""
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
        how: The name of a method of `probing.attach.injectors.methods`, or ``auto`` for the best.
        timeout_s: How long the agent may take until it answers; 10 s if not given, and up to 30 on
            a busy machine once it has begun to start.

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
    known = resolve(pid, directory)  # it may be in another place than one that is begun now
    if isinstance(known, Local) and _is_there(known.folder):
        return _attached(known.folder, None, began)
    files = AttachFiles(folder)
    was_taken = files.is_taken()
    obstacle = find_obstacle(pid)
    if obstacle is not None and not (was_taken or files.is_taken()):
        raise obstacle  # else it may be whoever attaches now, who traces and stops it
    until = began + (timeout_s or _LIMIT_S)
    with _turn(pid, directory, files, until) as order:
        if _is_there(folder):  # whoever was waited for has brought it
            return _attached(folder, None, began)
        if obstacle is not None:
            order.require_no_obstacle()
        method, held_s = order.send(how)
        # What has begun is on its way, and waits for its turn alone.
        order.wait_agent(method, until if timeout_s else max(until, began + start_s()))
    return _attached(folder, method, began, held_s)


@contextlib.contextmanager
def _turn(pid: int, directory: RunDirectory, files: AttachFiles, until: float) -> Iterator[_Order]:
    """Be the only one who attaches to a process.

    Raises:
        AttachWaiting: Somebody else does, and has not finished in time.
    """
    with contextlib.ExitStack() as stack:
        with written_as_its_user(pid, directory):
            lock = stack.enter_context(files.turn(directory, until))
        if lock is None:
            at_work = files.read()
            raise AttachWaiting(pid, at_work.describe() if at_work else "somebody attaches to it")
        yield _Order(directory, files, lock, until)


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
    except (NotProbed, ConnectionLost):  # one that could not start closes what it had opened
        return False
    except NotAnswering:
        return True
    return True


class _Order:
    """What is to be done in the process, and how far it is."""

    def __init__(
        self, directory: RunDirectory, files: AttachFiles, lock: int, until: float
    ) -> None:
        self._directory = directory
        self._files = files
        self._folder = files.folder
        self._lock = lock
        self._until = until

    def require_no_obstacle(self) -> None:
        """Look once more, behind whoever was waited for.

        Raises:
            ProbingError: There is one.
        """
        obstacle = find_obstacle(self._folder.pid)
        if obstacle is None:
            return
        if self._files.read() is None:
            self._clear()
        raise obstacle

    def send(self, how: str) -> tuple[str, float]:
        """Have the script begin; returns the method by which it did, and how long it held.

        Raises:
            AttachFailed: No way in was open; the order is taken back.
            AttachWaiting: It was injected and has not begun.
        """
        earlier = self._files.read()
        if earlier is not None and self._still_starts(earlier, how):
            return self._wait_begun(earlier)
        self._write()
        return self._inject(how)

    def _still_starts(self, earlier: Attach, how: str) -> bool:
        """Whether what an earlier attach has left will come to its end by itself.

        What that way has not begun yet can be given up for another; one that nobody keeps from
        beginning is not there any more: the process has run another program, or forgotten it.
        """
        if earlier.stage == "begun":
            return earlier.age_s < _STARTING_S
        if earlier.stage != "injected" or earlier.note is None or earlier.note.method != THREAD:
            return False
        return how in (AUTO, THREAD) and self._may_be_held()

    def _may_be_held(self) -> bool:
        """Whether a thread holds the interpreter lock, for all that is known."""
        try:
            return look_at_gil(self._folder.pid) is not None
        except NotAnswering:  # the machine is busy: what waits there is waited for
            return True
        except ProbingError:
            return False

    def _wait_begun(self, earlier: Attach) -> tuple[str, float]:
        """Wait until a script that was injected before has begun.

        Raises:
            AttachWaiting: It has not in time.
        """
        method = (earlier.note.method if earlier.note else None) or AUTO
        while self._files.script.exists() and self._folder.is_alive():
            self._raise_failure()
            if time.monotonic() > self._until:
                raise _waiting(self._folder.pid, method)
            time.sleep(_POLL_S)
        return method, 0.0

    def _inject(self, how: str) -> tuple[str, float]:
        """Inject the script.

        Raises:
            AttachFailed: No way in was open; the order is taken back.
            AttachWaiting: It was injected and has not begun.
        """
        pid = self._folder.pid
        patience_s = max(0.1, self._until - time.monotonic())
        order = {"pid": pid, "script": str(self._files.script), "how": how}
        outcome = ask_helper({**order, "patience_s": patience_s}, keep=(self._lock,))
        self._raise_failure()
        if outcome["has_run"]:
            return str(outcome["method"]), float(outcome["held_s"])
        if outcome["method"]:
            raise _waiting(pid, str(outcome["method"]))
        self._clear()
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
                "script": str(self._files.script),
                "home": str(self._folder.path.parent),
                "python": list(sys.version_info[:2]),
                "places": places_of(*_NEEDED),
                "uid": os.getuid(),
                "operator": os.getpid(),
                "forks": forks_text(),
            }
        )
        with written_as_its_user(pid, self._directory):
            self._files.order(text, Note(injector=os.getpid()))

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
                self._clear()
                return
            if time.monotonic() > until:
                why = "the agent began to start there and has not finished"
                raise AttachWaiting(pid, why, help=_GOES_ON)
            time.sleep(_POLL_S)

    def _raise_failure(self) -> None:
        """Raise what the process says that the agent failed of."""
        facts = self._files.failure()
        if facts:
            self._clear()
            raise _failure(self._folder.pid, facts)

    def _clear(self) -> None:
        """Take away what is left of the order."""
        with acting_as(self._directory.user), contextlib.suppress(OSError):
            self._files.clear()


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


def _waiting(pid: int, method: str) -> AttachWaiting:
    """The error for an agent that is in but has not begun, with what is in its way."""
    holder = who_holds_gil(pid)
    if holder is not None:
        return AttachWaiting(pid, holder, help=_ONCE_FREE)
    if method == PENDING:
        why = "its main thread has reached no safe point since, as it does not while it waits in C"
        return AttachWaiting(pid, why, help=_ANOTHER_WAY)
    return AttachWaiting(pid, f"no Python code has run in it since (by {method})")


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


def ask_helper(order: dict[str, Any], keep: Sequence[int] = ()) -> dict[str, Any]:
    """Have the helper process carry out an order.

    Args:
        keep: Descriptors that it keeps open as long as it lives.

    Raises:
        InternalError: It failed.
    """
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.injectors", json.dumps(order)],
        env={**os.environ, "PYTHONPATH": str(root), "PROBING": "0"},
        cwd="/",
        pass_fds=keep,
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
