"""The helpers that answer: a process for each question, a few at a time, one of them in waiting.

Rules of this file: called by many threads at once. A helper is killed when its client goes, when
its time is over, or when its client has read nothing for a while: nobody holds a place for ever.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pyarrow as pa

from ..errors import Busy, ProbingError, QueryTimedOut, SqlWorkerDied, Unreachable
from ..linux import limited_memory
from ..messages import common as wire
from ..safety.off_switch import without_agent
from .asked import Asked

_AT_ONCE = 4
_GRACE_S = 2.0
_LOOK_S = 0.1
_UNREAD_S = 60.0
"""How long rows may wait for their client to take them."""


class Gone(Exception):
    """The client has gone; there is nobody to tell."""


class Helpers:
    """Answers questions."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._spare: _Helper | None = None
        self._running: set[_Helper] = set()
        self._is_closed = False
        self._keep_a_spare()

    def answer(self, asked: Asked, is_gone: Callable[[], bool]) -> Generator[Any, None, None]:
        """The schema of the rows, then batches; close it when you leave it early.

        Args:
            is_gone: Whether the client is.

        Raises:
            ProbingError: There is no answer, or not all of it.
            Gone: The client is.
        """
        self._take_place(asked.timeout_s, is_gone)
        helper = None
        try:
            helper = self._take()
            helper.ask(asked, is_gone)
            yield from helper.answer(_UNREAD_S)
        finally:
            if helper is not None:
                with self._lock:
                    self._running.discard(helper)
                helper.end()
            self._places.release()

    def close(self) -> None:
        """End all of them; who reads from one is told."""
        with self._lock:
            self._is_closed = True
            running, spare, self._spare = list(self._running), self._spare, None
        for helper in running:
            helper.stop()  # who reads from it ends it
        if spare is not None:
            spare.end()

    def _take_place(self, limit_s: float, is_gone: Callable[[], bool]) -> None:
        """Wait for a place.

        Raises:
            Busy: None was free in time.
            Gone: The client is.
        """
        until = time.monotonic() + limit_s
        while not self._places.acquire(timeout=_LOOK_S):
            if is_gone():
                raise Gone
            if time.monotonic() > until:
                raise Busy("statements", _AT_ONCE)

    def _take(self) -> _Helper:
        with self._lock:
            if self._is_closed:
                raise _stopped()
            helper, self._spare = self._spare, None
            if helper is None or not helper.is_alive():
                if helper is not None:
                    helper.end()
                helper = _Helper()
            self._running.add(helper)
        threading.Thread(target=self._keep_a_spare, daemon=True).start()
        return helper

    def _keep_a_spare(self) -> None:
        with self._lock:
            if self._spare is None and not self._is_closed:
                self._spare = _Helper()


def _stopped() -> Unreachable:
    return Unreachable("the gateway was stopped, and the answer with it.", help="Ask again later.")


class _Helper:
    """One process, for one question."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "probing.gateway.helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=without_agent(os.environ) | limited_memory.ENVIRONMENT,
        )
        self._limit_s = self._until = 0.0
        self._is_gone: Callable[[], bool] = bool
        self._timer: threading.Timer | None = None
        self._is_unread = self._is_stopped = self._is_cut = False
        self.closed = False

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, asked: Asked, is_gone: Callable[[], bool]) -> None:
        """Hand over the question."""
        self._limit_s, self._is_gone = asked.timeout_s, is_gone
        self._until = time.monotonic() + asked.timeout_s + _GRACE_S
        stdin = self._popen.stdin
        assert stdin is not None  # it is a pipe
        with contextlib.suppress(BrokenPipeError):  # how it ended is told by `_failure`
            stdin.write(json.dumps(dataclasses.asdict(asked)).encode() + b"\n")
            stdin.flush()

    def answer(self, unread_s: float) -> Iterator[Any]:
        """The schema, then batches; time that the client takes is not counted."""
        try:
            reader = pa.ipc.open_stream(pa.PythonFile(self, mode="r"))
            yield reader.schema
            for batch in reader:
                started = time.monotonic()
                self._timer = threading.Timer(unread_s, self._give_up)
                self._timer.daemon = True
                self._timer.start()
                yield batch
                self._timer.cancel()
                self._until += time.monotonic() - started
        except (pa.ArrowException, OSError) as error:
            raise self._failure(error) from None
        try:
            code = self._popen.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            code = 0  # where it has told all, it may end late
        if code != 0 or self._is_cut:
            raise self._failure("it closed its pipe")

    def readable(self) -> bool:
        """It is, for pyarrow."""
        return True

    def read(self, size: int) -> bytes:
        """So many bytes, fewer only at the end, for pyarrow.

        A stream without an end mark is whole to pyarrow, not to us: whoever reads no further than
        the mark never comes to the end.

        Raises:
            QueryTimedOut: They do not come in time.
            Gone: The client has gone.
        """
        parts, missing = [], size
        while missing > 0 and (part := self._read_some(missing)):
            parts.append(part)
            missing -= len(part)
        self._is_cut = missing > 0
        return b"".join(parts)

    def _read_some(self, size: int) -> bytes:
        """At most so many bytes, as soon as there are any."""
        stdout = self._popen.stdout
        assert stdout is not None  # it is a pipe
        while not select.select([stdout], [], [], _LOOK_S)[0]:
            if self._is_gone():
                raise Gone
            if time.monotonic() > self._until:
                self.kill()
                raise QueryTimedOut(self._limit_s)
        return os.read(stdout.fileno(), size)

    def stop(self) -> None:
        """Have it end because the gateway does."""
        self._is_stopped = True
        self.kill()

    def _give_up(self) -> None:
        self._is_unread = True
        self.kill()

    def _failure(self, what: object) -> ProbingError:
        """Why there are no more rows."""
        if self._is_stopped:
            return _stopped()
        if self._is_unread:
            return Unreachable(
                "nobody has read these rows for a minute, so they were given up.",
                help="Ask again, and read to the end or close.",
            )
        told, ended = b"", str(what)
        try:
            _, told = self._popen.communicate(timeout=_GRACE_S)
            code = self._popen.returncode
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        except subprocess.TimeoutExpired as late:
            told = late.stderr or b""
        except (ValueError, OSError):
            pass  # there is no more to be found out
        start = told.rfind(b'{"error"')
        return SqlWorkerDied(ended) if start < 0 else wire.decode_error(told[start:])

    def kill(self) -> None:
        self._popen.kill()

    def end(self) -> None:
        """Have it gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it was not sent is of no use any more
                    pipe.close()
