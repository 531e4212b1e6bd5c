"""Which tensors the training was given last: batches of its loaders, arguments of its models.

Rules of this file: runs in the training threads, once per batch and call of a root; keeps weak
references to a few tensors, so that nothing lives longer for it.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ....ring.native import IN_C
from ..storage.living import whole
from .batches import tensors_of

_CALLS = 8
"""How many batches and calls are remembered: some loops fetch a few batches ahead."""
_MOST_TENSORS = 32


_References = Callable[[Any, int, tuple[Any, ...], dict[str, Any]], "list[weakref.ref[Any]]"]


def references(
    plain: Any, most: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[weakref.ref[Any]]:
    """Weak references to the plain tensors among arguments that nothing has made, so many at most.

    The C part does the same; a test compares the two.
    """
    given = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) is plain and value.grad_fn is None:
            given.append(weakref.ref(value))  # noqa: PERF401 - that is a call more
    return given if len(given) <= most else given[:most]


class Inputs:
    """Remembers the tensors that came in last."""

    def __init__(self, *, in_c: bool = True) -> None:
        """Begin without any.

        Args:
            in_c: Whether the C part looks at what a model is given, where it was built.
        """
        self._plain: Any = None
        self._references: _References = references
        if in_c and IN_C is not None:
            self._references = IN_C.references
        self._latest: deque[list[weakref.ref[Any]]] = deque(maxlen=_CALLS)
        self._batches: deque[list[tuple[str, weakref.ref[Any]]]] = deque(maxlen=_CALLS)
        self._fetched: list[weakref.ref[Any]] = []
        self._given: list[weakref.ref[Any]] = []

    def batch_came(self, batch: object) -> None:
        """A batch has been fetched."""
        plain = self._plain = self._plain or sys.modules["torch"].Tensor
        found = tensors_of(batch, plain)
        named = [(name, weakref.ref(t)) for name, t in found[:_MOST_TENSORS]]
        self._batches.append(named)
        self._fetched = [reference for _, reference in named]
        self._latest.append(self._fetched)

    def root_called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root module is about to be called with these."""
        plain = self._plain = self._plain or sys.modules["torch"].Tensor
        self._given = self._references(plain, _MOST_TENSORS, args, kwargs)
        self._latest.append(self._given)

    def last_batch(self) -> Any:
        """The tensors of the batch in use that live, by name; of a bare one, or a tuple, so.

        That is the one of which the model was called with a part, else the last that was fetched:
        some loops fetch one ahead, others move it to a device. Where no loader has given any for
        some calls, as where a list of them is gone through again and again, it is what the model
        was called with.
        """
        named = self._batch_in_use()
        found = {name: tensor for name, ref in named if (tensor := ref()) is not None}
        if all(not name or name.isdecimal() for name in found):
            tensors = tuple(whole([*found.values()]))
            return tensors if len(tensors) > 1 else next(iter(tensors), None)
        whole([*found.values()])
        return found or None

    def _batch_in_use(self) -> list[tuple[str, Any]]:
        """See `last_batch`."""
        batches: list[list[tuple[str, Any]]] = list(self._batches)
        latest, last = list(self._latest), self._given
        given = {id(tensor) for ref in last if (tensor := ref()) is not None}
        for named in batches[::-1]:
            if any(id(ref()) in given for _, ref in named):
                return named
        if batches and any(entry is self._fetched for entry in latest):
            return batches[-1]
        return [(str(i), reference) for i, reference in enumerate(last)]

    def alive(self) -> list[Any]:
        """Those tensors that are still there."""
        found = [reference() for batch in list(self._latest) for reference in batch]
        return whole([tensor for tensor in found if tensor is not None])
