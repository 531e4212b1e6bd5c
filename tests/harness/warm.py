"""Starts Python programs from a Python that has imported torch, or the commands, already.

Rules of this file: importing torch takes two seconds of a core and a first optimizer step one more;
a fork of a process that has done both takes none, and what runs in it is as real. What a process
reads only as it starts cannot be forked: an option of the interpreter, a variable that Python or a
library reads while it is loaded. Such a program is started cold, as is what tests starting itself.
A test may be stopped anywhere in here: the next one finds a server that answers, a new one if need
be.
"""

from __future__ import annotations

import atexit
import itertools
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TRACE_TRAININGS = "TESTS_TRACE_TRAININGS"
"""Set where lines of trainings are counted, too: they are slower then."""
_READ_AT_START = (
    "ARROW", "DUCKDB", "GLIBC", "KMP", "LANG", "LC_", "LD_", "MALLOC", "MKL", "OMP",
    "OPENBLAS", "PYTHON", "TORCH", "TZ",
)  # fmt: skip
"""How variables begin that Python or a library reads as it is loaded."""
_OF_LAUNCHERS = ("TORCHELASTIC",)
"""Such as are read later all the same."""
ANSWER_S = 240.0
"""How long a warm Python may take to start or to answer."""


class Process(Protocol):
    """A process that tests started: a `subprocess.Popen`, or what is like one."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """How it ended; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""

    def send_signal(self, sig: int) -> None:
        """Send a signal if it still runs."""

    def kill(self) -> None:
        """Kill it."""

    def terminate(self) -> None:
        """Ask it to end."""


class Forked:
    """A process that a warm server has forked; ended and not waited for, it is a zombie.

    Attributes:
        args: Its command line.
        pid: Its process id.
        returncode: How it ended; None while that was not asked.
    """

    def __init__(self, server: _Server, args: list[str], pid: int) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        if self.returncode is None and self._has_ended(0):
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left_s = end - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            if self._has_ended(left_s) and self.poll() is None:
                time.sleep(0.01)  # somebody traces it, who has to be told first
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _has_ended(self, wait_s: float) -> bool:
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(self._end, select.POLLIN)
        return bool(waiting.poll(1000 * min(wait_s, 3600)))

    def _reap(self) -> None:
        try:
            self.returncode = self._server.ask({"reap": self.pid})["code"]
        except WarmPythonGone:
            self.returncode = -signal.SIGKILL  # by the kernel, as its parent ended
        if self.returncode is not None:
            os.close(self._end)


class WarmPythonGone(Exception):
    """A warm Python gives no answer; it was ended, and with it all that it has forked."""


class _Server:
    """A warm Python of one kind, started when it is first needed.

    Attributes:
        door: Where shells of the tests come in.
        owner: The process that it belongs to.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._socket, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_S)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.door = Path(self._folder.name) / "door"
        self.owner = os.getpid()
        argv = [sys.executable, str(HERE / "warm_server.py"), kind, str(self.door)]
        env = _ENV if kind == "commands" else without_counting(_ENV)
        how: dict[str, Any] = {"cwd": ROOT, "env": env, "stdin": theirs.fileno()}
        with theirs:
            if kind == "watched":  # torch is imported already where it comes from
                self._process: Process = start(argv, kind="torch", stdout=1, stderr=2, **how)
            else:
                self._process = subprocess.Popen(argv, **how)
        try:
            self._hear()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is there to be asked."""
        return self._socket.fileno() >= 0 and self._process.poll() is None

    def ask(self, request: dict[str, object], streams: Sequence[int] = ()) -> dict[str, Any]:
        """Send a request, with descriptors, and hear the answer.

        Raises:
            WarmPythonGone: There is none.
        """
        with self._lock:
            number = next(self._numbers)
            body = json.dumps({"id": number, **request}).encode()
            try:
                socket.send_fds(self._socket, [body], streams)
            except OSError as error:
                raise self._gone() from error
            while True:
                answer: dict[str, Any] = json.loads(self._hear())
                if answer["id"] == number:
                    return answer
                if "pid" in answer:  # of a test that was stopped before it heard of its process
                    os.kill(answer["pid"], signal.SIGKILL)

    def _hear(self) -> bytes:
        try:
            heard = self._socket.recv(4096)
        except OSError as error:
            raise self._gone() from error
        if not heard:
            raise self._gone()
        return heard

    def _gone(self) -> WarmPythonGone:
        """End it where it is stuck; returns the error that says so."""
        name = f"the warm Python for {self._kind}"
        if self._socket.fileno() < 0:
            return WarmPythonGone(f"{name} is gone")
        where = own_stack(self.pid) if self._process.poll() is None else ""
        code = self.stop(grace_s=1)
        return WarmPythonGone(f"{name} gave no answer and is gone (exit code {code}).{where}")

    def stop(self, grace_s: float = 10) -> int:
        """End it; returns its exit code."""
        self._socket.close()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._folder.cleanup()
        return self._process.wait()


def own_stack(pid: int) -> str:
    """Where a Python process of the tests is, for a message; empty if that cannot be told."""
    tool = Path(sys.executable).with_name("py-spy")
    try:
        done = subprocess.run(
            [tool, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"\n{done.stdout}"


_ENV = {name: value for name, value in os.environ.items() if not name.startswith("PROBING")}
_ENV.update(PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1")
_servers: dict[str, _Server] = {}
_starting = threading.RLock()  # the watched one is started by the one with torch


def start(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    kind: str | None = None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    start_new_session: bool = False,
) -> Process:
    """Start a Python program: forked from a warm server where that can be, else cold.

    Args:
        kind: What that server has imported; by its command line if None: torch, and the agent
            too where the program runs under it.
    """
    words = [os.fspath(word) for word in argv]
    if not can_fork(words, env):
        return subprocess.Popen(
            words, cwd=cwd, env=dict(env), stdin=stdin, stdout=stdout, stderr=stderr,
            start_new_session=start_new_session,
        )  # fmt: skip
    if kind is None:
        kind = "watched" if words[1:3] == ["-m", "probing._run"] else "torch"
    server = _server(kind)
    null = os.open(os.devnull, os.O_RDWR)
    places: list[int] = []
    for stream in (stdin, stdout, stderr):
        if stream == subprocess.STDOUT:
            places.append(places[1])
        elif stream == subprocess.DEVNULL:
            places.append(null)
        else:
            places.append(stream if isinstance(stream, int) else stream.fileno())
    request = {"argv": words, "env": dict(env), "cwd": str(cwd), "session": start_new_session}
    try:
        return Forked(server, words, server.ask(request, places)["pid"])
    finally:
        os.close(null)


def door_of(kind: str) -> str:
    """Where `forward.py` asks for programs of a kind."""
    return str(_server(kind).door)


def commands_on_path(folder: Path) -> Path:
    """Make a folder with `probing` and `python`, as an installation puts them on PATH."""
    place = folder / "bin"
    place.mkdir()
    forward = f'-IS "{HERE / "forward.py"}" "{door_of("commands")}"'
    for name, options in (("python", ""), ("probing", forward)):
        path = place / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
        path.chmod(0o755)
    return place


def can_fork(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a program would be the same if it were forked from a warm server."""
    is_plain = argv[0] == sys.executable and len(argv) > 1
    if not is_plain or (argv[1].startswith("-") and argv[1] not in {"-m", "-c"}):
        return False
    return at_start(env) == at_start(_ENV)


def without_counting(env: Mapping[str, str]) -> dict[str, str]:
    """An environment for a training: coverage counts no lines of it, unless that is asked for.

    Traced, it is so much slower that it is no longer what is tested.
    """
    if TRACE_TRAININGS in env:
        return dict(env)
    return {name: value for name, value in env.items() if not name.startswith("COVERAGE")}


def at_start(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """What an environment tells a process that starts; that of this run, if None is given.

    Torch, once it is imported in this process, too, sets such variables.
    """
    env = _ENV if env is None else env
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_READ_AT_START) and not name.startswith(_OF_LAUNCHERS)
    }


def _server(kind: str) -> _Server:
    """The server of a kind that belongs to this process."""
    with _starting:
        server = _servers.get(kind)
        is_ours = server is not None and server.owner == os.getpid()
        if server is None or not is_ours or not server.is_alive:
            if server is not None and is_ours:
                server.stop()
            server = _servers[kind] = _Server(kind)
        return server


@atexit.register
def stop() -> None:
    """End all servers of this process."""
    for kind, server in reversed(list(_servers.items())):
        if server.owner == os.getpid():
            server.stop()
        del _servers[kind]
