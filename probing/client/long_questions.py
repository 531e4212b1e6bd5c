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
    outcome: list[bytes | Exception] = []
    is_done = threading.Event()

    def work() -> None:
        try:
            outcome.append(
                ask(address, route, body=body, timeout_s=timeout_s, most_bytes=LARGE_ANSWER_BYTES)
            )
        except Exception as error:  # noqa: BLE001 - raised again where the outcome is read
            outcome.append(error)
        is_done.set()

    start_aside(work, name=route)
    heard, known = time.monotonic(), None
    while not is_done.wait(_POLL_S):
        with contextlib.suppress(ProbingError):
            status = progress(_PROGRESS_TIMEOUT_S)
            heard = time.monotonic()
            if tell is not None and status != known:
                tell(status)
            known = status
        if time.monotonic() - heard > silence_s:
            raise NotAnswering(f"the agent at {address}", silence_s)
    result = outcome[0]
    if isinstance(result, Exception):
        raise result
    return result
