"""Which optimizers a backward pass makes gradients for, where there are several.

Rules of this file: runs in the training thread, around backward passes; looks at two parameters of
each optimizer, whether they have gradients and how often those were written to, never at what is in
them, and keeps none alive.
"""

from __future__ import annotations

from typing import NamedTuple

from ...shared.gradients import NO_GRADIENT, State, states_of
from ...shared.recording import Recording
from ...shared.versions import Held, held_at_ends
from .members import Members

_NOBODY: frozenset[int] = frozenset()
_MOST = 32
"""Of more optimizers than that none is looked at: each costs time in every pass."""


class _Before(NamedTuple):
    """A parameter and its gradient as a pass begins."""

    number: int
    parameter: Held
    gradient: State


class Reached:
    """Compares gradients before and behind a pass.

    An optimizer may be one of a training in another thread, as long as it has not stepped.
    """

    def __init__(self, recording: Recording, members: Members) -> None:
        self._recording = recording
        self._members = members
        self._before: list[_Before] = []

    def pass_begins(self) -> None:
        """A backward pass is about to begin."""
        objects = self._recording.objects
        made = objects.counted_optimizers(objects.made)
        ends = [
            (self._members.number_of(optimizer), *end)
            for optimizer in (made if 1 < len(made) <= _MOST else ())
            for end in held_at_ends(optimizer)
        ]
        states = states_of([parameter for *_, parameter in ends], self._recording)
        self._before = [
            _Before(number, held, state)
            for (number, held, _), state in zip(ends, states, strict=False)
        ]

    def pass_ended(self) -> frozenset[int]:
        """It has ended: the numbers of the optimizers; none where that is not known."""
        if not self._before:
            return _NOBODY
        before, self._before = self._before, []
        found = [(one, p) for one in before if (p := one.parameter.find()) is not None]
        states = states_of([parameter for _, parameter in found], self._recording)
        return frozenset(
            one.number
            for (one, _), state in zip(found, states, strict=False)
            if state not in (NO_GRADIENT, one.gradient)
        )
