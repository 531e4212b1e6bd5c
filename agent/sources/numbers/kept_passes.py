"""How many of a step's backward passes are still in each gradient as the optimizer uses it.

Rules of this file: runs in the training thread, at both ends of backward passes of the steps that
were asked for; reads what stands beside a tensor's data, and the data only of a gradient that is
still the one that was used: `gradient.data.zero_()` changes nothing beside them. Keeps no gradient:
what the script throws away is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..shared.versions import AsSeen, as_seen
from .gradient_tensors import is_zero


class Counted(NamedTuple):
    """What a gradient is made of as the optimizer uses it.

    Attributes:
        passes: Backward passes of the step that have made or changed it.
        kept: How many of those are in it.
        has_older: Whether what the optimizer has used in its step before is in it, too; None where
            that step was not seen.
    """

    passes: int
    kept: int
    has_older: bool | None


class _Gradient:
    """What is known of the gradient of one parameter.

    Attributes:
        passes: So many passes have made or changed it since it was last used.
        kept: The results of so many are in it; None where that cannot be told.
        has_older: Whether the first of them has added to what was used before; None if unknown.
        is_zero: Whether the pass that goes on has found nothing but zeros in what was used before.
        seen: The gradient as the last pass has left it.
    """

    __slots__ = (
        "_used",
        "has_older",
        "is_zero",
        "kept",
        "passes",
        "seen",
        "weights_version",
    )

    def __init__(self, parameter: Any, used: AsSeen | None) -> None:
        self.passes = 0
        self.kept: int | None = 0
        self.has_older = None if used is None else False
        self.is_zero = False
        self._used = used
        self.seen: AsSeen | None = None
        self.weights_version = parameter._version

    def begins(self, gradient: Any) -> None:
        """A backward pass begins."""
        used = self._used
        is_as_used = used is not None and self.seen is None and used.is_in(gradient, changes=0)
        self.is_zero = is_as_used and is_zero(gradient)

    def passed(self, parameter: Any, gradient: Any) -> None:
        """A backward pass has ended."""
        seen = self.seen if self.seen is not None and self.seen.is_of(gradient) else None
        if seen is not None and gradient._version == seen.version:
            return
        if self._is_of_others(gradient):
            return
        if parameter._version != self.weights_version:  # changed by what was there before
            self.passes, self.kept = 0, 0
        if seen is None:
            # One with a graph of its own is made anew in each pass, and has those before in it.
            self.kept = None if gradient.requires_grad else 1
            if self._used is not None:
                self.has_older = not self.is_zero and self._used.is_in(gradient, changes=1)
        elif self.kept is not None:
            self.kept = self.kept + 1 if gradient._version == seen.version + 1 else None
        self.passes += 1
        self.seen = as_seen(gradient)
        self.weights_version = parameter._version

    def _is_of_others(self, gradient: Any) -> bool:
        """Whether the first pass seen since it was used has left it alone.

        It may have been set to zero in place meanwhile, which is a change as a pass is one.
        """
        used = self._used
        if used is None:
            return False
        if used.is_in(gradient, changes=0):
            return True
        if not used.is_in(gradient, changes=1) or self.is_zero or not is_zero(gradient):
            return False
        self._used, self.has_older, self.kept = None, False, 0
        self.seen = as_seen(gradient)
        return True


class KeptPasses:
    """Counts backward passes, gradient by gradient.

    Attributes:
        knows_step: Whether it has counted all passes of the step in progress.
    """

    def __init__(self) -> None:
        self.knows_step = True
        self._known: dict[int, _Gradient] = {}
        self._used: dict[int, AsSeen] = {}

    def begins(self, parameters: Iterable[Any]) -> None:
        """A backward pass begins."""
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None and not gradient.is_inference() and id(parameter) in self._used:
                self._of(parameter).begins(gradient)

    def passed(self, parameters: Iterable[Any]) -> None:
        """A backward pass has ended."""
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None and not gradient.is_inference():
                self._of(parameter).passed(parameter, gradient)

    def _of(self, parameter: Any) -> _Gradient:
        """What is known of a parameter's gradient."""
        known = self._known.get(id(parameter))
        if known is None:
            known = self._known[id(parameter)] = _Gradient(parameter, self._used.get(id(parameter)))
        return known

    def take(self, parameter: Any, gradient: Any) -> Counted | None:
        """What a gradient that is about to be used is made of.

        None where no pass was seen, not all were, or it cannot be told: the script has put another
        in its place.
        """
        known = self._known.pop(id(parameter), None)
        if not gradient.is_inference():
            self._used[id(parameter)] = as_seen(gradient)
        if not self.knows_step or known is None or known.kept is None or known.seen is None:
            return None  # none was seen that changed it
        if not known.seen.is_of(gradient):
            return None
        return Counted(known.passes, known.kept, known.has_older)

    def clear(self) -> None:
        """A step has ended: what was not used in it belongs to none.

        What was used before may still be in it, as where only another optimizer has stepped.
        """
        for key, known in self._known.items():
            if known.has_older and known.seen is not None:
                self._used[key] = known.seen
        self._known.clear()
        self.knows_step = True
