"""Which gradients have a backward pass in them that was made for another optimizer.

Rules of this file: as `kept_passes`. A generator's loss goes through the critic and leaves
gradients there: if nobody sets them to zero, the critic's own pass adds to them. Parameters that
several optimizers' passes reach together may be meant to gather them: those are not told.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .gradient_tensors import is_zero

Groups = Mapping[str, Sequence[Any]]
"""The parameters of each optimizer, by its name."""


class _Made(NamedTuple):
    """A gradient as a backward pass has left it.

    Attributes:
        reached: The optimizers that this pass has made gradients of; none where it was not seen.
        spent_by: The one of them that has stepped since, which is not this parameter's.
        left_by: The one that has used a pass before this, which is in it, too.
    """

    reference: weakref.ref[Any]
    version: int
    reached: frozenset[str]
    spent_by: str | None = None
    left_by: str | None = None

    def is_in(self, gradient: Any, *, changes: int) -> bool:
        """Whether it is that one, after so many changes."""
        return gradient._version == self.version + changes and self.reference() is gradient


class LeftPasses:
    """Follows gradients from pass to pass, also those that no optimizer uses meanwhile."""

    def __init__(self) -> None:
        self._made: dict[int, _Made] = {}

    def begins(self, groups: Groups) -> None:
        """A backward pass begins: what the script has changed since the last is of that no more."""
        for parameters in groups.values():
            for parameter in parameters:
                gradient, made = parameter.grad, self._made.get(id(parameter))
                if gradient is None or gradient.is_inference():
                    self._made.pop(id(parameter), None)
                elif made is None or not _is_as_left(gradient, made):
                    self._made[id(parameter)] = _made(gradient)

    def passed(self, groups: Groups) -> None:
        """A backward pass has ended."""
        changed = {name: list(filter(self._is_changed, own)) for name, own in groups.items()}
        reached = frozenset([name for name, own in changed.items() if own])
        for own in changed.values():
            for parameter in own:
                gradient, made = parameter.grad, self._made.get(id(parameter))
                is_added = made is not None and made.is_in(gradient, changes=1)
                left_by = made.spent_by or made.left_by if made is not None and is_added else None
                self._made[id(parameter)] = _made(
                    gradient, reached, left_by if len(reached) == 1 else None
                )

    def _is_changed(self, parameter: Any) -> bool:
        """Whether the pass that has ended made or changed the gradient of a parameter."""
        gradient, made = parameter.grad, self._made.get(id(parameter))
        if gradient is None or gradient.is_inference():
            return False
        return made is None or not made.is_in(gradient, changes=0)

    def steps(self, name: str) -> None:
        """An optimizer is about to step."""
        for key, made in self._made.items():
            if name in made.reached:
                self._made[key] = made._replace(spent_by=name)

    def take(self, parameter: Any, gradient: Any) -> str | None:
        """Who has left something in a gradient that its own optimizer is about to use."""
        made = self._made.pop(id(parameter), None)
        return made.left_by if made is not None and made.reference() is gradient else None


def _made(
    gradient: Any, reached: frozenset[str] = frozenset(), left_by: str | None = None
) -> _Made:
    """A gradient as it is now."""
    return _Made(weakref.ref(gradient), gradient._version, reached, left_by=left_by)


def _is_as_left(gradient: Any, made: _Made) -> bool:
    """Whether a gradient is what a pass has left; `gradient.data.zero_()` changes no version."""
    return made.is_in(gradient, changes=0) and (made.spent_by is None or not is_zero(gradient))
