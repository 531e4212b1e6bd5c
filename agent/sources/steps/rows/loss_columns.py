"""The columns of losses and norms in a row of a step.

Rules of this file: used by the training thread, once per step. What is not here yet is given back,
to be written later.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .....ring.format import NULL_FLOAT
from .....ring.writer import RingWriter
from ...numbers.number import Number
from .late_rows import Later
from .losses import AreFinite, ClippedNorm, Loss, OneLoss, are_one, loss_of, used_of
from .optimizer_rows import OptimizerRows


class _Places(NamedTuple):
    """Where they are."""

    loss: int
    first_loss: int
    last_loss: int
    loss_finite: int
    grad_norm: int
    clipped_norm: int


class LossColumns:
    """Fills them in."""

    def __init__(self, steps: RingWriter) -> None:
        self._at = _Places(*steps.places_of(*_Places._fields))

    def fill(
        self, closing: list[object], losses: list[Loss], dropped: int, optimizers: OptimizerRows
    ) -> tuple[list[tuple[int, Later]], bool]:
        """Fill in what is here of the losses of a step's micro-batches.

        Args:
            dropped: How many of them, the first, were of passes whose gradients are gone.
            optimizers: Those of the step's own optimizers.

        Returns:
            The others with their columns, and whether all of them are of one thing.
        """
        at, have_one = self._at, optimizers.have_one_loss
        own = [losses[place] for place in used_of(losses, dropped)]
        share = optimizers.windows.of(0).seen(own)
        is_plain = len(losses) == 1 and not losses[0].parts and share is None
        if is_plain and (value := losses[0].number.read()) is not None:
            closing[at.first_loss] = closing[at.last_loss] = value
            if value is not NULL_FLOAT:
                closing[at.loss_finite] = int(math.isfinite(value))
            if have_one and not dropped:
                closing[at.loss] = value
            return [], have_one
        later: list[tuple[int, Later]] = [
            (at.first_loss, OneLoss(losses, 0, share)),
            (at.last_loss, OneLoss(losses, -1, share)),
            (at.loss_finite, AreFinite(losses)),
        ]
        is_one = have_one and are_one(own)
        if is_one:
            later.append((at.loss, loss_of(own, share)))
        return later, is_one

    def norms(self, norm: Number, max_norm: float | None) -> list[tuple[int, Later]]:
        """The norm of a step's gradients, and what it was clipped to, with their columns."""
        if max_norm is None:
            return [(self._at.grad_norm, norm)]
        return [
            (self._at.grad_norm, norm),
            (self._at.clipped_norm, ClippedNorm(norm, max_norm)),
        ]
