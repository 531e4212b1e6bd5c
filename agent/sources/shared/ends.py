"""The first and the last parameter of an optimizer: whether they have gradients, and which.

Rules of this file: runs in the training thread, twice in every step. Looks at no value in a
gradient, and keeps none, nor a parameter. Where all is as torch makes it, and no other thread
trains, the C part looks; what is meant is said here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ....ring.native import IN_C
from .gradients import gradients_of, trains_alone
from .recording import Recording
from .versions import Held, held_at_ends, version_of

State = tuple[int, int]
"""Which gradient a parameter has, and how often that was written to."""
NO_GRADIENT: State = (0, -1)
_Seen = tuple[tuple[int, ...], tuple[State, ...]]
"""What both are known again by, and the state of each."""


def _cannot_tell(_: object) -> None:
    """Stands for the C part where there is none."""


class Ends:
    """Those of the optimizer that was asked for last, which mostly is the same again.

    Attributes:
        held: How the parameters are known: the same list for as long as they are the same.
    """

    def __init__(self, recording: Recording, *, in_c: bool = True) -> None:
        """Begin without any.

        Args:
            in_c: Whether the C part looks, where it was built.
        """
        self._recording = recording
        is_in_c = in_c and IN_C is not None
        self._look: Callable[[Any], _Seen | None] = IN_C.ends_of if is_in_c else _cannot_tell
        self.held: list[Held] = []
        self._holder: weakref.ref[Any] | None = None
        self._key: tuple[int, ...] = ()

    def states(self, optimizer: Any) -> Sequence[State]:
        """Their states, in the order of `held`; none where that cannot be known now.

        Args:
            optimizer: None where there is none.
        """
        seen = self._look(optimizer) if trains_alone(self._recording) else None
        if seen is None:
            return self._plain_states(optimizer)
        key, states = seen
        holder = self._holder
        if key != self._key or holder is None or holder() is not optimizer:
            self.held = [held for held, _ in held_at_ends(optimizer)]
            self._holder, self._key = weakref.ref(optimizer), key
        return states

    def _plain_states(self, optimizer: Any) -> Sequence[State]:
        """The same of whatever optimizer, and where others train, too."""
        found = held_at_ends(optimizer)
        self.held, self._holder = [held for held, _ in found], None
        return states_of([parameter for _, parameter in found], self._recording)


def states_of(parameters: Sequence[Any], recording: Recording) -> list[State]:
    """The states of some parameters; none where they cannot be known now."""
    found = gradients_of(parameters, recording) or ()
    return [NO_GRADIENT if one is None else (id(one), version_of(one)) for one in found]
