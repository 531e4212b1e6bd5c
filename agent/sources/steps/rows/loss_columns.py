"""The columns of losses and norms in a row of a step.

Rules of this file: used by the training thread, once per step. What is not here yet is given back,
to be written later.
"""

from __future__ import annotations

import math

from .....messages.frozen import dataclass
from .....ring.format import NULL_FLOAT, NULL_INT
from .....ring.writer import RingWriter
from ...numbers.number import Missed, Number, known_of
from .late_rows import Later, put
from .losses import (
    AreFinite,
    ClippedNorm,
    Loss,
    OneLoss,
    are_one,
    clip_factor,
    loss_of,
    used_of,
)
from .optimizer_rows import OptimizerRows


@dataclass(slots=True)
class _Places:
    """Where they are."""

    loss: int
    first_loss: int
    last_loss: int
    loss_finite: int
    not_finite_since: int
    grad_norm: int
    clipped_norm: int


class Since:
    """Since which step no loss has been finite.

    Losses of a device come late, and those of one step maybe after those of the next.

    Attributes:
        finite: The last step whose loss is known to be finite; -1 before one.
    """

    def __init__(self) -> None:
        self.finite, self._first = -1, NULL_INT

    def at(self, step: int, *, is_finite: bool) -> int:
        """The first of these steps, now that this one is known; NULL where it is finite."""
        if is_finite:
            self.finite = max(self.finite, step)
            return NULL_INT
        if step > self.finite and not self.finite < self._first < step:
            self._first = step
        return self._first if self._first > self.finite else NULL_INT


class _LateSince:
    """The same of a step whose losses may not be known yet."""

    def __init__(self, since: Since, step: int, are_finite: AreFinite) -> None:
        self._since, self._step, self._are_finite = since, step, are_finite
        self._told: int | None = None

    def read(self) -> int | None:
        """See `Later`."""
        found = self._are_finite.read()
        if self._told is None and found is not None:
            known = found in {0, 1}  # there may be none
            told = self._since.at(self._step, is_finite=bool(found)) if known else NULL_INT
            self._told = told
        return self._told


class _PlainLoss:
    """The loss of a step of one pass that nothing has divided: all columns are told by it.

    What is asked once is a question to the device once, not one for each of them.
    """

    def __init__(
        self, columns: LossColumns, closing: list[object], number: Later, step: int, *, is_one: bool
    ) -> None:
        self._columns, self._closing, self._number = columns, closing, number
        self._step, self._is_one = step, is_one
        self._told: float | None = None

    def read(self) -> float | None:
        """See `Later`; the columns beside its own are filled in, once."""
        if self._told is None and (value := self._number.read()) is not None:
            self._columns.fill_plain(self._closing, value, step=self._step, is_one=self._is_one)
            self._told = value
        return self._told


class LossColumns:
    """Fills them in."""

    def __init__(self, steps: RingWriter) -> None:
        self._at = _Places(*steps.places_of(*_Places.__match_args__))
        self._since = Since()

    def fill(  # noqa: PLR0917 - once per step
        self,
        closing: list[object],
        later: list[tuple[int, Later]],
        losses: list[Loss],
        dropped: int,
        step: int,
        optimizers: OptimizerRows,
    ) -> bool:
        """Fill in what is here of the losses of a step's micro-batches.

        Args:
            later: The others with their columns are added to it.
            dropped: How many of them, the first, were of passes whose gradients are gone.
            step: The number of the step.
            optimizers: Those of the step's own optimizers.

        Returns:
            Whether all of them are of one thing.
        """
        at, have_one = self._at, optimizers.have_one_loss
        if len(losses) == 1 and losses[0].share is None and not losses[0].parts:
            is_one, number = have_one and not dropped, losses[0].number
            if type(number) is Missed:
                later.append((at.loss, number))
                return have_one
            if (value := known_of(number)) is not None:
                self.fill_plain(closing, value, step=step, is_one=is_one)
                return have_one
            if not dropped:
                plain = _PlainLoss(self, closing, number, step, is_one=is_one)
                later.append((at.first_loss, plain))
                return have_one
        own = [losses[place] for place in used_of(losses, dropped)]
        share = optimizers.windows.seen(0, own)
        are_finite = AreFinite(losses)
        later += [
            (at.first_loss, OneLoss(losses, 0, share)),
            (at.last_loss, OneLoss(losses, -1, share)),
            (at.loss_finite, are_finite),
            (at.not_finite_since, _LateSince(self._since, step, are_finite)),
        ]
        later += [(at.loss, one.number) for one in losses if type(one.number) is Missed]
        is_one = have_one and are_one(own)
        if is_one:
            later.append((at.loss, loss_of(own, share)))
        return is_one

    def fill_plain(self, closing: list[object], value: float, *, step: int, is_one: bool) -> None:
        """Fill in what one loss tells that is a step's only one."""
        at = self._at
        closing[at.first_loss] = closing[at.last_loss] = value
        if math.isfinite(value):
            closing[at.loss_finite] = 1
            self._since.finite = max(self._since.finite, step)
        elif value is not NULL_FLOAT:
            closing[at.loss_finite] = 0
            closing[at.not_finite_since] = self._since.at(step, is_finite=False)
        if is_one:
            closing[at.loss] = value

    def norms(
        self,
        closing: list[object],
        later: list[tuple[int, Later]],
        norm: Number,
        max_norm: float | None,
    ) -> None:
        """Fill in the norm of a step's gradients, and what it was clipped to; or have it later."""
        put(norm, self._at.grad_norm, closing, later)
        if max_norm is None:
            return
        if later or norm.here is None:
            later.append((self._at.clipped_norm, ClippedNorm(norm, max_norm)))
        else:
            closing[self._at.clipped_norm] = norm.here * clip_factor(norm.here, max_norm)
