"""Starts Python programs from a Python that has imported torch, or the commands, already.

Rules of this file: importing torch takes two seconds of a core and a first optimizer step one more;
a fork of a process that has done both takes none, and what runs in it is as real. What a process
reads only as it starts cannot be forked: an option of the interpreter, a variable that Python or a
library reads while it is loaded. Such a program is started cold, as is what tests starting itself.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

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
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._reap()
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

    def _reap(self) -> None:
        self.returncode = self._server.ask({"reap": self.pid})["code"]
        os.close(self._end)


class _Server:
    """A warm Python of one kind, started when it is first needed."""

    def __init__(self, kind: str) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.door = Path(self._folder.name) / "door"
        argv = [sys.executable, str(HERE / "warm_server.py"), kind, str(self.door)]
        env = _ENV if kind == "commands" else without_counting(_ENV)
        with theirs:
            self._process = subprocess.Popen(argv, cwd=ROOT, env=env, stdin=theirs.fileno())
        self._answers = self._socket.makefile("rb")
        self.owner = os.getpid()
        assert self._answers.readline() == b"warm\n", "the warm Python did not start"

    def ask(self, request: dict[str, object], streams: Sequence[int] = ()) -> dict[str, int]:
        """Send a request, with descriptors, and hear the answer."""
        body = json.dumps(request).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        with self._lock:
            self._socket.sendmsg([b"%8d" % len(body)], rights if streams else [])
            self._socket.sendall(body)
            line = self._answers.readline()
        assert line, "the warm Python has ended"
        answer: dict[str, int] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End it."""
        self._answers.close()
        self._socket.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


_ENV = {name: value for name, value in os.environ.items() if not name.startswith("PROBING")}
_ENV.update(PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1")
_servers: dict[str, _Server] = {}
_starting = threading.Lock()


def start(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    kind: str = "torch",
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    start_new_session: bool = False,
) -> Process:
    """Start a Python program: forked from a warm server where that can be, else cold."""
    words = [os.fspath(word) for word in argv]
    if not can_fork(words, env):
        return subprocess.Popen(
            words, cwd=cwd, env=dict(env), stdin=stdin, stdout=stdout, stderr=stderr,
            start_new_session=start_new_session,
        )  # fmt: skip
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


def commands_on_path(folder: Path) -> Path:
    """Make a folder with `probing` and `python`, as an installation puts them on PATH."""
    place = folder / "bin"
    place.mkdir()
    forward = f'-IS "{HERE / "forward.py"}" "{_server("commands").door}"'
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
        if server is None or server.owner != os.getpid():
            server = _servers[kind] = _Server(kind)
        return server


@atexit.register
def stop() -> None:
    """End all servers of this process."""
    for kind, server in list(_servers.items()):
        if server.owner == os.getpid():
            server.stop()
        del _servers[kind]
