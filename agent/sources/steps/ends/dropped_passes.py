"""Backward passes whose gradients no optimizer uses: thrown away, or of nothing that is trained.

Rules of this file: runs in the training thread, around backward passes; looks at two parameters,
whether they have gradients and how often those were written to, never at what is in them, and
keeps none alive.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...shared.gradients import NO_GRADIENT, Ends, State, gradients_of, states_of
from ...shared.recording import Recording
from ...shared.versions import Held
from .hand_steps import leaves_of


class DroppedPasses:
    """Leaves the losses of such passes out of the step's.

    An attack on the input, for one, makes gradients of the parameters too, and the script sets them
    to None before the pass that it trains by.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._ends = Ends(recording)
        self._held: list[Held] = []  # the parameters, as a pass begins
        self._before: Sequence[State] = ()  # and their gradients
        self._made: list[Held] = []
        self._usual: list[Held] = []  # what passes have made that were looked at
        self._last: list[tuple[Held, int]] = []  # and their gradients as a pass ended
        self._has_dropped = False

    def pass_begins(self) -> None:
        """A backward pass is about to begin: are the gradients of those before it still there?"""
        if self._made:
            self._find_dropped()
        self._before = self._ends.states(self._optimizer())
        self._held = self._ends.held

    def passed_unseen(self) -> None:
        """The pass before, in the same step, was not looked at: it has made what others have."""
        self._made = list(self._usual)

    def forget(self) -> None:
        """What comes next is another step."""
        self._made, self._has_dropped = [], False

    def _find_dropped(self) -> None:
        """Another pass begins in the same step."""
        made = [parameter for held in self._made if (parameter := held.find()) is not None]
        gradients = gradients_of(made, self._recording)
        if gradients and all(gradient is None for gradient in gradients):
            self._recording.rows.drop_losses()
            self._has_dropped = True
        self._made = []

    def pass_ended(self, losses: Sequence[Any]) -> bool:
        """It has ended: which gradients has it made, or added to?

        Args:
            losses: What it began with.

        Returns:
            Whether they are of anything that is trained, as far as is known.
        """
        before, self._before = self._before, ()
        last: list[tuple[Held, int]] = []
        self._last = last
        if not before:
            return True
        made, held = self._made, self._held
        count, states = len(made), self._ends.states_again()
        if held is not self._ends.held:
            held, before, states = self._still_there(held, before)
        self._ends.note(held, before, states, NO_GRADIENT, made, last)
        self._usual = made or self._usual
        return len(made) > count or self._train(losses)

    def _still_there(
        self, held: list[Held], before: Sequence[State]
    ) -> tuple[list[Held], list[State], list[State]]:
        """Of some parameters those that are where they were, with their states before and now."""
        found = [
            (one, state, parameter)
            for one, state in zip(held, before, strict=False)
            if (parameter := one.find()) is not None
        ]
        states = states_of([parameter for *_, parameter in found], self._recording)
        return [one for one, *_ in found], [state for _, state, _ in found], states

    def _train(self, losses: Sequence[Any]) -> bool:
        """Whether losses come from a parameter, or from a tensor that an optimizer has.

        Samples of an energy-based model do not, nor does an attack on a model that is frozen for
        it.
        """
        parameter = sys.modules["torch"].nn.Parameter
        leaves = set()
        for leaf in leaves_of(losses):
            if isinstance(leaf, parameter):
                return True
            leaves.add(id(leaf))
        return any(
            id(one) in leaves
            for optimizer in self._recording.objects.counted_optimizers()
            for group in optimizer.param_groups
            for one in group["params"]
        )

    def optimizer_stepped(self) -> None:
        """The gradients have been used: were they those that the last pass has made?

        Some scripts put aside what each pass has made, as for each task or sample, and set what
        they make of all as gradients.
        """
        last, self._made, self._last = self._last, [], []
        has_dropped, self._has_dropped = self._has_dropped, False
        if has_dropped and last and all(map(self._is_set_by_hand, last)):
            self._recording.rows.keep_losses()

    def _is_set_by_hand(self, last: tuple[Held, int]) -> bool:
        """Whether a parameter has another gradient than a pass has made."""
        parameter = last[0].find()
        if parameter is None:
            return False
        (gradient,) = gradients_of([parameter], self._recording) or (None,)
        return gradient is not None and id(gradient) != last[1]

    def _optimizer(self) -> Any:
        """The optimizer that ends the steps; None where none is there."""
        objects = self._recording.objects
        optimizer = objects.optimizer() if objects.optimizer is not None else None
        if optimizer is None:
            optimizer = next(iter(objects.counted_optimizers(objects.made)), None)
        return optimizer
