"""Numbers of a step that are made of others: the losses of its micro-batches, clipped norms.

Rules of this file: used by the training thread. A number that is still on its way from a device is
None until it has come; nobody waits for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .....ring.format import NULL_BOOL, NULL_FLOAT
from ...numbers.number import Number
from .late_rows import Later

_EPSILON = 1e-6
"""As torch.nn.utils.clip_grad_norm_ has it."""
_SAME = 0.1
"""How far the shares of micro-batches may be from one when added up: ``loss * 0.333`` is meant as
1/3, and a rank's tokens need not be just as many as those of the others."""
_NEARLY = 0.02
_MOST_WINDOWS = 64
_MOST_LOSSES = 1 << 15


class Total:
    """The sum of numbers, each of which may still be on its way.

    What has come is added up at once: a step may have thousands of passes.
    """

    def __init__(self, *numbers: Number | Total) -> None:
        self._sum = 0.0
        self._late: list[Number] = []
        for number in numbers:
            if isinstance(number, Total):
                number.read()
                self._add(number._sum)
                self._late += number._late
            else:
                self._late.append(number)

    def read(self) -> float | None:
        """See `Later`."""
        values = [(number, number.read()) for number in self._late]
        for _, value in values:
            if value is not None:
                self._add(value)
        self._late = [number for number, value in values if value is None]
        return None if self._late else self._sum

    def _add(self, value: float) -> None:
        """One more has come; with one that is not known, nor is the sum."""
        is_known = value is not NULL_FLOAT and self._sum is not NULL_FLOAT
        self._sum = self._sum + value if is_known else NULL_FLOAT


class CommonShare:
    """What part of the step's each of the losses is that one pass begins with, if all are the same.

    Losses that are different parts stand for themselves.
    """

    def __init__(self, shares: list[Number]) -> None:
        self._shares = shares

    def read(self) -> float | None:
        """See `Later`."""
        first, *others = [share.read() for share in self._shares]
        if first is None or None in others:
            return None
        return first if others.count(first) == len(others) else 1.0


class Loss(NamedTuple):
    """The loss of a micro-batch, and what part of the step's it is, where that is known.

    Attributes:
        reached: The numbers of the optimizers that its pass made gradients for; none: not known.
        trains: Whether that made gradients of anything that is trained, as far as is known.
        parts: Of a sum, the losses of its passes.
    """

    number: Number | Total
    share: Number | CommonShare | None
    reached: frozenset[int] = frozenset()
    trains: bool = True
    parts: tuple[Number | Total, ...] = ()

    def is_for(self, others: frozenset[int]) -> bool:
        """Whether one of some optimizers uses its gradients, as far as both are known."""
        return not (self.reached and others) or not self.reached.isdisjoint(others)


class Skipped:
    """How many steps were left out, where the optimizer itself may have left out this one."""

    def __init__(self, before: int, found_inf: Number) -> None:
        self._before = before
        self._found_inf = found_inf

    def read(self) -> int | None:
        """See `Later`."""
        found = self._found_inf.read()
        return None if found is None else self._before + (found > 0)


def summed(losses: list[Loss]) -> list[Loss]:
    """Those of the passes of one micro-batch, added up where an optimizer uses them together."""
    found: list[Loss] = []
    for loss in losses:
        for place, other in enumerate(found):
            if other.is_for(loss.reached):
                found[place] = _sum_of(other, loss)
                break
        else:
            found.append(loss)
    return found


def _sum_of(first: Loss, second: Loss) -> Loss:
    """Two losses as one."""
    return Loss(
        Total(first.number, second.number),
        first.share,
        first.reached | second.reached,
        first.trains or second.trains,
        (*(first.parts or (first.number,)), second.number),
    )


def used_of(losses: list[Loss], dropped: int) -> list[int]:
    """Which losses of a step are of passes that it was trained by, as far as is known.

    Args:
        dropped: How many of them, the first, were of passes whose gradients are gone.
    """
    if len(losses) == 1 and not dropped:
        return [0]
    places = range(dropped, len(losses))
    used = []
    for place in places:
        if losses[place].trains:
            used.append(place)  # noqa: PERF401 - that is a call more, in every step
    return used or list(places)


def are_one(losses: list[Loss]) -> bool:
    """Whether losses are of the same thing, not of models with nothing in common."""
    return all(losses[0].is_for(loss.reached) for loss in losses[1:])


def _are_shares(losses: list[Loss]) -> bool | None:
    """Whether losses were divided so that they add up to the step's; None while it is unknown."""
    shares = [1.0 if loss.share is None else loss.share.read() for loss in losses]
    parts = [share for share in shares if share is not None]
    return None if len(parts) < len(shares) else abs(_added(parts) - 1.0) < _SAME


class Window:
    """By what a script divides the losses that it accumulates, as a full window has shown.

    The last window of an epoch is mostly a partial one: its shares do not add up to one. Where
    such are as many as others, what divides is no number of passes: ``mse / 2``, now and then of
    two batches.
    """

    def __init__(self) -> None:
        self._share: float | None = None
        self._full = self._partial = 0

    def seen(self, losses: list[Loss]) -> float | None:
        """A step was trained by these losses: what share each is, where that is known so."""
        shares = {1.0 if loss.share is None else loss.share.read() for loss in losses}
        share = shares.pop() if len(shares) == 1 else None
        if not share or not 0.0 < share < 1.0:
            return None
        if share != self._share:
            self._share, self._full, self._partial = share, 0, 0
        is_full = len(losses) > 1 and bool(_are_shares(losses)) and _is_part(share)
        is_known = is_full or self._full > self._partial
        self._full += is_full
        self._partial += not is_full
        return share if is_known else None


class Windows:
    """The same of several optimizers, by their numbers; 0 is of whole steps."""

    def __init__(self) -> None:
        self._known: dict[int, Window] = {}

    def seen(self, who: int, losses: list[Loss]) -> float | None:
        """See `Window`, of the step of one of them; losses that nothing has divided are whole."""
        for loss in losses:
            if loss.share is not None:
                break
        else:
            return None
        if who not in self._known:
            if len(self._known) >= _MOST_WINDOWS:
                self._known.clear()
            self._known[who] = Window()
        return self._known[who].seen(losses)


def add_losses(losses: list[Loss], more: list[Loss], dropped: int) -> int:
    """Add the newest; of very many, as of passes that no step ends, the oldest but the first go.

    Args:
        dropped: How many of them, the first, were of passes whose gradients are gone.

    Returns:
        The same of those that are left.
    """
    losses += more
    if len(losses) <= _MOST_LOSSES:
        return dropped
    surplus = len(losses) - _MOST_LOSSES // 2
    del losses[1 : 1 + surplus]
    return max(min(dropped, 1), dropped - surplus)


def _added(numbers: list[float]) -> float:
    """The sum of numbers, also of both infinities and of what no float can hold."""
    try:
        return math.fsum(numbers)
    except (ValueError, OverflowError):
        return sum(numbers)


def _is_part(share: float) -> bool:
    """Whether it is one by a whole number: not that of a number of tokens."""
    return abs(share * round(1.0 / share) - 1.0) < _NEARLY


class MeanLoss:
    """The loss of a step, from those of its micro-batches.

    Where each is a share of it already, divided by their number or by that of all their tokens
    before its backward pass, as for gradient accumulation, it is their sum.

    Args:
        share: What share each is, where `Window` knows that.
    """

    def __init__(self, losses: list[Loss], share: float | None = None) -> None:
        self._losses = losses
        self._share = share

    def read(self) -> float | None:
        """See `Later`."""
        if not self._losses:
            return NULL_FLOAT
        values = [loss.number.read() for loss in self._losses]
        here = [value for value in values if value is not None]
        if self._share is not None and len(here) == len(values):
            return _added(here) / self._share / len(here)
        are_shares = _are_shares(self._losses)
        if are_shares is None or len(here) < len(values):
            return None
        return _added(here) / (1 if are_shares else len(here))


class OneLoss:
    """The loss of one of the passes, the first or the last, as it was before it was divided.

    Where the losses are shares of the step's, what a script prints is mostly the whole one.

    Args:
        share: What share those that it was trained by are, where `Window` knows that.
    """

    def __init__(self, losses: list[Loss], place: int, share: float | None = None) -> None:
        self._losses = losses
        self._place = place
        self._share = share

    def read(self) -> float | None:
        """See `Later`."""
        if not self._losses:
            return NULL_FLOAT
        loss = self._losses[self._place]
        if loss.parts:
            return loss.parts[self._place].read()
        value, share = loss.number.read(), loss.share
        if value is None or share is None:
            return value
        if self._share is not None and share.read() == self._share:
            return value / self._share
        if len(self._losses) == 1:
            return value
        are_shares = _are_shares(self._losses)
        part = share.read() if are_shares else 1.0
        return None if are_shares is None or part is None else value / part if part else value


class AreFinite:
    """Whether all of the losses are neither infinite nor NaN."""

    def __init__(self, losses: list[Loss]) -> None:
        self._losses = losses

    def read(self) -> int | None:
        """See `Later`."""
        values = [loss.number.read() for loss in self._losses]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        told = [value for value in known if value is not NULL_FLOAT]
        return int(all(map(math.isfinite, told))) if told else NULL_BOOL


def clip_factor(norm: float, max_norm: float) -> float:
    """What `clip_grad_norm_` multiplies gradients of a norm with."""
    return min(1.0, max_norm / (norm + _EPSILON))


class ClippedNorm:
    """The norm of gradients after clipping."""

    def __init__(self, norm: Number, max_norm: float) -> None:
        self._norm = norm
        self._max_norm = max_norm

    def read(self) -> float | None:
        """See `Later`."""
        norm = self._norm.read()
        return norm if norm is None else norm * clip_factor(norm, self._max_norm)


def loss_of(losses: list[Loss], share: float | None) -> Later:
    """The loss of several micro-batches; that of one is itself, unless it is a known share."""
    is_itself = share is None and len(losses) == 1
    return losses[0].number if is_itself else MeanLoss(losses, share)
