"""How many of a step's backward passes are still in each gradient as the optimizer uses it.

Rules of this file: runs in the training thread, at the end of backward passes of the steps that
were asked for; reads what stands beside a tensor's data. Gradients are referred to weakly: what the
script throws away is gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any


class _Gradient:
    """What is known of the gradient of one parameter.

    Attributes:
        passes: So many passes have made or changed it since it was last used.
        kept: The results of so many are in it; None where that cannot be told.
    """

    __slots__ = ("kept", "passes", "reference", "version", "weights_version")

    def __init__(self, parameter: Any) -> None:
        self.passes = 0
        self.kept: int | None = 0
        self.reference: Any = None
        self.version = 0
        self.weights_version = parameter._version

    def passed(self, parameter: Any, gradient: Any) -> None:
        """A backward pass has ended."""
        is_same = self.reference is not None and self.reference() is gradient
        if is_same and gradient._version == self.version:
            return
        if parameter._version != self.weights_version:  # changed by what was there before
            self.passes, self.kept = 0, 0
        if not is_same:
            # One with a graph of its own is made anew in each pass, and has those before in it.
            self.kept = None if gradient.requires_grad else 1
        elif self.kept is not None:
            self.kept = self.kept + 1 if gradient._version == self.version + 1 else None
        self.passes += 1
        self.reference, self.version = weakref.ref(gradient), gradient._version
        self.weights_version = parameter._version


class KeptPasses:
    """Counts backward passes, gradient by gradient."""

    def __init__(self) -> None:
        self._known: dict[int, _Gradient] = {}

    def passed(self, parameters: Iterable[Any]) -> None:
        """A backward pass has ended."""
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is None or gradient.is_inference():
                continue
            known = self._known.get(id(parameter))
            if known is None:
                known = self._known[id(parameter)] = _Gradient(parameter)
            known.passed(parameter, gradient)

    def take(self, parameter: Any, gradient: Any) -> tuple[int, int] | None:
        """How many passes there were and are kept, of a gradient that is about to be used.

        None where none was seen, or it cannot be told: the script has put another in its place.
        """
        known = self._known.pop(id(parameter), None)
        if known is None or known.kept is None or known.reference() is not gradient:
            return None
        return known.passes, known.kept

    def clear(self) -> None:
        """Begin anew."""
        self._known.clear()
