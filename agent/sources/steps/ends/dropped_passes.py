"""Backward passes whose gradients no optimizer uses: thrown away, or of nothing that is trained.

Rules of this file: runs in the training thread, around backward passes; looks at two parameters,
whether they have gradients and how often those were written to, never at what is in them, and
keeps none alive.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...shared.gradients import gradients_of
from ...shared.recording import Recording
from ...shared.versions import Held, held_at_ends, version_of
from .hand_steps import leaves_of


class DroppedPasses:
    """Leaves the losses of such passes out of the step's.

    An attack on the input, for one, makes gradients of the parameters too, and the script sets them
    to None before the pass that it trains by.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        # Parameters and their gradients as a pass begins, and how often those were written to.
        self._before: list[tuple[Held, int, int]] = []
        self._made: list[Held] = []
        self._last: list[tuple[Held, int]] = []  # and their gradients as a pass ended
        self._has_dropped = False

    def pass_begins(self) -> None:
        """A backward pass is about to begin: are the gradients of those before it still there?"""
        if self._made:
            made = [parameter for held in self._made if (parameter := held.find()) is not None]
            gradients = gradients_of(made, self._recording)
            if gradients and all(gradient is None for gradient in gradients):
                self._recording.rows.drop_losses()
                self._has_dropped = True
            self._made = []
        looked_at = self._looked_at()
        gradients = gradients_of([parameter for _, parameter in looked_at], self._recording)
        self._before = [
            (held, id(gradient), -1 if gradient is None else version_of(gradient))
            for (held, _), gradient in zip(looked_at, gradients or (), strict=False)
        ]

    def pass_ended(self, losses: Sequence[Any]) -> bool:
        """It has ended: which gradients has it made, or added to?

        Args:
            losses: What it began with.

        Returns:
            Whether they are of anything that is trained, as far as is known.
        """
        before, self._before = self._before, []
        made, last = self._made, []
        count = len(made)
        there = [(one, found) for one in before if (found := one[0].find()) is not None]
        gradients = gradients_of([parameter for _, parameter in there], self._recording)
        for ((held, number, version), _), gradient in zip(there, gradients or (), strict=False):
            if gradient is not None:
                now = id(gradient)
                if now != number or version_of(gradient) != version:
                    made.append(held)
                last.append((held, now))
        self._last = last
        return not before or len(made) > count or self._train(losses)

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

    def _looked_at(self) -> list[tuple[Held, Any]]:
        """The first and the last parameter of the optimizer that ends the steps."""
        objects = self._recording.objects
        optimizer = objects.optimizer() if objects.optimizer is not None else None
        if optimizer is None:
            optimizer = next(iter(objects.counted_optimizers(objects.made)), None)
        return held_at_ends(optimizer)
