"""Which CUDA graphs are being captured, in whichever thread.

Rules of this file: one state per process, as captures are. A capture in torch's usual mode
forbids every thread of the process to ask whether the device has come to somewhere: who does breaks
it, and the program gets the error. So the two methods that begin and end one are told of here
before they are called, and who asks from a thread of the agent's own does so under `quiet`.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from ..torch_types import CUDAGraph
from .api import device_api, is_stream_capturing

_LONGEST_WAIT_S = 1.0
UNDER_WAY: dict[int, Any] = {}
_asking = threading.Lock()


def is_capturing() -> bool:
    """Whether work is being captured for a CUDA graph, where nothing may be added or asked."""
    api = device_api()
    return bool(api.is_initialized() and (UNDER_WAY or is_stream_capturing(api)))


def begins(graph: CUDAGraph) -> None:
    """A graph is about to be captured; waits for those who ask, for a second at most."""
    key = id(graph)
    UNDER_WAY[key] = weakref.ref(graph, lambda _: UNDER_WAY.pop(key, None))
    if _asking.acquire(timeout=_LONGEST_WAIT_S):
        _asking.release()


def ended(graph: CUDAGraph) -> None:
    """It is, or its capture has failed."""
    UNDER_WAY.pop(id(graph), None)


@contextlib.contextmanager
def quiet() -> Iterator[bool]:
    """While this lasts, no capture begins; gives whether none was under way, so that one may ask.

    For threads of the agent's own: they cannot see from a stream of theirs what others capture.
    """
    is_ours = _asking.acquire(timeout=_LONGEST_WAIT_S)  # in a forked child it may be nobody's
    try:
        yield is_ours and not UNDER_WAY
    finally:
        if is_ours:
            _asking.release()
