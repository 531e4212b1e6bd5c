"""A SQL worker as a process apart: no child of the training, whose code may wait for all of those.

Rules of this file: runs in the training process and waits for nothing without an end. What is
started here is a go-between, a child for the milliseconds in which it starts the worker's parent.
That one tells over a socket how the worker ends, and ends it on demand and with the training. Where
it would be a child of the training again, or nobody would take note of its end, it is one at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ...linux import process
from ...own_files import SQL_WORKER_PARENT
from .sql_worker_parent import LEAVES, STAYS

_PR_GET_CHILD_SUBREAPER = 37
_LOOK_S = 0.005
_REAP_S = 1.0
_TAKE_NOTE_S = 30.0
"""Within how long whom a process was left to takes note of its end: some look every few seconds."""

_NUMBERS, _CODE = re.compile(rb"\d+ \d+"), re.compile(rb"-?\d+")
"""What the parent tells; other lines are the interpreter's, as of one that found no memory."""
_MOST_CHARS = 200

_left: list[tuple[int, float]] = []
"""Those that were left to others: their numbers, and when they ended."""


class ProcessApart:
    """A SQL worker and its parent.

    Attributes:
        requests: The end of the pipe that the worker reads from.
        answers: The end of the one that it writes to.
        pid: The worker's process id, once it has been told; 0 until then.
        code: How the worker ended, as `subprocess` has it; None where that is not known.
    """

    def __init__(self, words: Sequence[str], environment: dict[str, str]) -> None:
        """Start it.

        Raises:
            OSError: It cannot be started.
        """
        self._stays = _adopts() or _is_anyone_left()
        script = str(Path(__file__).with_name(SQL_WORKER_PARENT))
        whose = (str(os.getpid()), str(threading.get_native_id()))
        self._said, theirs = socket.socketpair()
        self._said.settimeout(0)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-IS", script, *whose, STAYS if self._stays else LEAVES, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=theirs.fileno(),
                bufsize=0,
                close_fds=True,
                cwd="/",
                env=environment,
            )
        except BaseException:
            self._said.close()
            raise
        finally:
            theirs.close()
        assert self._popen.stdin is not None  # both are pipes, see above
        assert self._popen.stdout is not None
        self.requests: IO[bytes] = self._popen.stdin
        self.answers: IO[bytes] = self._popen.stdout
        self.pid = 0
        self.code: int | None = None
        self._parent = 0
        self._heard = b""
        self._why = ""
        self._is_gone = self._is_released = False
        if not self._stays:
            self._reap()

    def fileno(self) -> int:
        """Where something is to be read when there is something to be told."""
        return self._said.fileno()

    def is_gone(self) -> bool:
        """Whether both have ended; one that is dying is gone only with its last thread."""
        while not self._is_gone:
            try:
                part = self._said.recv(64)
            except BlockingIOError:
                return False
            except OSError:
                part = b""
            if part:
                self._hear(part)
            else:
                self._end()
        return True

    def how_it_ended(self) -> str:
        """The reason in words, once it is gone."""
        code = self.code
        if code is None:  # the parent ended, and the worker with it
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._popen.wait(_REAP_S) or None
        why = f": {self._why}" if self._why and self.code is None else ""
        if code is None:
            return f"its parent process was ended{why}"
        return f"signal {-code}{why}" if code < 0 else f"exit code {code}{why}"

    def kill(self) -> None:
        """End it at once; `is_gone` says when it is so."""
        with contextlib.suppress(OSError):
            self._said.send(b"\0", socket.MSG_NOSIGNAL)
        if self.is_gone():
            return
        if not self.pid:  # nothing has begun, or it hears that byte later
            self._popen.kill()
            return
        facts = process.facts(self.pid)
        if facts is not None and facts.parent == self._parent:  # which may be stopped
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, limit_s: float) -> bool:
        """Wait until it is gone; whether it is."""
        until = time.monotonic() + limit_s
        while not self.is_gone() and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return self._is_gone

    def release(self) -> None:
        """Close the pipes, once nobody waits for it any more, and the socket as it is gone."""
        self._is_released = True
        for end in (self.requests, self.answers, *((self._said,) if self._is_gone else ())):
            end.close()

    def _hear(self, part: bytes) -> None:
        *lines, self._heard = (self._heard + part).split(b"\n")
        for line in lines:
            if _NUMBERS.fullmatch(line):
                self._parent, self.pid = map(int, line.split())
            elif _CODE.fullmatch(line):
                self.code = int(line)
            elif line.strip():
                self._why = line.decode("utf-8", "replace").strip()[:_MOST_CHARS]

    def _end(self) -> None:
        self._is_gone = True
        if self._is_released:
            self._said.close()
        if self._stays:
            self._reap()
        elif self._parent:
            _left.append((self._parent, time.monotonic()))

    def _reap(self) -> None:
        """Take note of the child's end the moment it comes: the training may wait for any child."""
        with contextlib.suppress(RuntimeError):  # the interpreter is ending
            threading.Thread(target=self._popen.wait, name="probing-reaper", daemon=True).start()


def _adopts() -> bool:
    """Whether whose parent has ended becomes a child of this process."""
    answer = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return os.getpid() == 1 or answer.value != 0


def _is_anyone_left() -> bool:
    """Whether one that was left to others is still a zombie: the next would be one, too."""
    late = time.monotonic() - _TAKE_NOTE_S
    zombies = [(pid, ended) for pid, ended in _left if process.state(pid) == "Z"]
    _left[:] = zombies
    return any(ended < late for _, ended in zombies)
