"""Backward passes whose gradients no optimizer uses: thrown away, or of nothing that is trained.

Rules of this file: runs in the training thread, around backward passes; looks at two parameters,
whether they have gradients and how often those were written to, never at what is in them, and
keeps none alive.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...shared.gradients import UNKNOWN, gradient_beside
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
            if made and all(self._gradient_of(parameter) is None for parameter in made):
                self._recording.rows.drop_losses()
                self._has_dropped = True
            self._made = []
        is_known, before = self._recording.objects.optimizer is not None, []
        for held, parameter in self._looked_at():
            gradient = parameter.grad if is_known else self._gradient_of(parameter)
            if gradient is not UNKNOWN:
                version = -1 if gradient is None else version_of(gradient)
                before.append((held, id(gradient), version))
        self._before = before

    def pass_ended(self, losses: Sequence[Any]) -> bool:
        """It has ended: which gradients has it made, or added to?

        Args:
            losses: What it began with.

        Returns:
            Whether they are of anything that is trained, as far as is known.
        """
        before, self._before = self._before, []
        is_known = self._recording.objects.optimizer is not None
        made, last = self._made, []
        count = len(made)
        for held, number, version in before:
            parameter = held.find()
            if parameter is None:
                continue
            gradient = parameter.grad if is_known else self._gradient_of(parameter)
            if gradient is not None and gradient is not UNKNOWN:
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
        gradient = None if parameter is None else self._gradient_of(parameter)
        is_there = gradient is not None and gradient is not UNKNOWN
        return is_there and id(gradient) != last[1]

    def _gradient_of(self, parameter: Any) -> Any:
        """The gradient of a parameter.

        Before any optimizer has stepped it may be one of a training in another thread.
        """
        if self._recording.objects.optimizer is not None:
            return parameter.grad
        return gradient_beside(parameter, self._recording.passing)

    def _looked_at(self) -> list[tuple[Held, Any]]:
        """The first and the last parameter of the optimizer that ends the steps."""
        objects = self._recording.objects
        optimizer = objects.optimizer() if objects.optimizer is not None else None
        if optimizer is None:
            optimizer = next(iter(objects.counted_optimizers(objects.made)), None)
        return held_at_ends(optimizer)
