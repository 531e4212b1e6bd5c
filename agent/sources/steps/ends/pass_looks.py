"""Which backward passes are looked at: whose their gradients are, and whether anybody uses them.

Rules of this file: runs in the training thread, around backward passes that no optimizer has made;
decides, and looks at nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...shared.recording import Recording
from .dropped_passes import DroppedPasses
from .members import Members
from .reached import Reached

_FIRST = 8
"""So many passes are looked at in any training: what the later ones make is known by these."""
_NOBODY: frozenset[int] = frozenset()


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
