"""Which tensors the training was given last: batches of its loaders, arguments of its models.

Rules of this file: runs in the training threads, once per batch and call of a root; keeps weak
references to a few tensors, so that nothing lives longer for it.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from typing import Any

from .batches import tensors_of

_CALLS = 8
"""How many batches and calls are remembered: some loops fetch a few batches ahead."""
_MOST_TENSORS = 32


class Inputs:
    """Remembers the tensors that came in last."""

    def __init__(self) -> None:
        self._plain: Any = None
        self._latest: deque[list[weakref.ref[Any]]] = deque(maxlen=_CALLS)

    def batch_came(self, batch: Any) -> None:
        """A batch has been fetched."""
        plain = self._plain = self._plain or sys.modules["torch"].Tensor
        found = tensors_of(batch, plain)
        self._latest.append([weakref.ref(tensor) for _, tensor in found[:_MOST_TENSORS]])

    def root_called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root module is about to be called with these."""
        plain = self._plain = self._plain or sys.modules["torch"].Tensor
        given = [value for value in (*args, *kwargs.values()) if type(value) is plain]
        self._latest.append([weakref.ref(t) for t in given[:_MOST_TENSORS] if t.grad_fn is None])

    def alive(self) -> list[Any]:
        """Those tensors that are still there."""
        found = [reference() for batch in list(self._latest) for reference in batch]
        return [tensor for tensor in found if tensor is not None]
