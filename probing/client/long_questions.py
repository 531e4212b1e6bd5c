"""Asks for what takes a training some steps to answer, and tells meanwhile how far it is.

Rules of this file: runs at the operator's side. The request stays open until the answer comes; when
the caller leaves, so does the request, and the agent ends what was begun for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import NotAnswering, ProbingError
from ..messages.limits import LARGE_ANSWER_BYTES
from ..reach.address import Address
from ..reach.limited_socket import Leave
from ..reach.transport import ask
from ..safety.side_threads import start_aside

S = TypeVar("S")

_POLL_S = 0.2
_PROGRESS_TIMEOUT_S = 2.0


def ask_and_watch(
    address: Address,
    route: str,
    body: Any,
    *,
    timeout_s: float,
    silence_s: float,
    progress: Callable[[float], S],
    tell: Callable[[S], None] | None = None,
) -> bytes:
    """The answer to a question that takes long.

    Args:
        timeout_s: How long the answer may take.
        silence_s: How long the process may say nothing of how far it is.
        progress: Asks how far it is, within so many seconds.
        tell: Called each time there is something new about that.

    Raises:
        NotAnswering: The process says nothing any more.
        ProbingError: What the agent answered instead.
    """
    leave = Leave()

    def request() -> bytes:
        most = LARGE_ANSWER_BYTES
        return ask(address, route, body=body, timeout_s=timeout_s, most_bytes=most, leave=leave)

    outcome = _Outcome(request, name=route)
    heard, known = time.monotonic(), None
    try:
        while not outcome.is_there.wait(_POLL_S):
            with contextlib.suppress(ProbingError):
                status = progress(_PROGRESS_TIMEOUT_S)
                heard = time.monotonic()
                if tell is not None and status != known:
                    tell(status)
                known = status
            if time.monotonic() - heard > silence_s:
                raise NotAnswering(f"the agent at {address}", silence_s)
    finally:
        leave.now()
    return outcome.get()


class _Outcome:
    """What comes of a request that a thread of its own waits for."""

    def __init__(self, request: Callable[[], bytes], *, name: str) -> None:
        self.is_there = threading.Event()
        self._request = request
        self._result: bytes | Exception = b""
        start_aside(self._work, name=name)

    def get(self) -> bytes:
        """The answer, or what was raised instead."""
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def _work(self) -> None:
        try:
            self._result = self._request()
        except Exception as error:  # noqa: BLE001 - raised again by `get`
            self._result = error
        self.is_there.set()
