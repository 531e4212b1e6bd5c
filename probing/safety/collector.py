"""Has the garbage collector wait.

Rules of this file: standard library only; imported with the agent, so as little as it can be.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep it from looking through all objects again as many are made, or told of."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
