"""Which backward passes are looked at: whose their gradients are, and whether anybody uses them.

Rules of this file: runs in the training thread, around backward passes that no optimizer has made;
looks at two parameters of each optimizer, whether they have gradients and how often those were
written to, never at what is in them, and keeps none alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...shared.gradients import NO_GRADIENT, State, states_of
from ...shared.recording import Recording
from ...shared.versions import Held, held_at_ends
from .dropped_passes import DroppedPasses
from .members import Members

_FIRST = 8
"""So many passes are looked at in any training: what the later ones make is known by these."""
_NOBODY: frozenset[int] = frozenset()
_MOST = 32
"""Of more optimizers than that none is looked at: each costs time in every pass."""


class _Before(NamedTuple):
    """A parameter and its gradient as a pass begins."""

    number: int
    parameter: Held
    gradient: State


class Reached:
    """Which optimizers a pass makes gradients for: compares these before and behind it.

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


class PassLooks:
    """Looks at all passes of a training in which that tells anything.

    Where one optimizer's step has followed each pass so far, no gradients are to be told apart, and
    none were thrown away. Once two passes come before one step, all are looked at from then on.
    """

    def __init__(self, recording: Recording, members: Members) -> None:
        self._rows = recording.rows
        self._dropped = DroppedPasses(recording)
        self._reached = Reached(recording, members)
        self._left = _FIRST
        self._has_passed = False  # since an optimizer has stepped
        self._are_several = self._is_on = False

    def pass_begins(self, *, is_new: bool) -> None:
        """A backward pass is about to begin.

        Args:
            is_new: Whether it is not known yet what follows what.
        """
        if self._has_passed and not self._are_several:
            self._are_several = True
            if not self._is_on:
                self._dropped.passed_unseen()
        self._has_passed = True
        self._is_on = self._are_several or is_new or self._left > 0
        if self._is_on:
            self._left -= 1
            self._dropped.pass_begins()
            self._reached.pass_begins()

    def pass_ended(self, losses: Sequence[Any], *, trains: bool) -> None:
        """It has ended.

        Args:
            losses: What it began with.
            trains: Whether gradients of parameters come of it, as far as is known.
        """
        if self._is_on:
            does_train = self._dropped.pass_ended(losses) or not trains
            self._rows.reached(self._reached.pass_ended(), does_train)
        else:
            self._rows.reached(_NOBODY, True)  # noqa: FBT003 - as in C

    def optimizer_stepped(self) -> None:
        """The gradients have been used."""
        self._has_passed = False
        if self._is_on:
            self._dropped.optimizer_stepped()

    def forget(self) -> None:
        """Recording stops: what it sees next is of another step."""
        self._has_passed = False
        self._dropped.forget()
