"""What operations that reduce take beside what tensors without data show.

Rules of this file: touches no tensor of the program. Some losses of torch hand out a number in the
memory of all that they have added up, and keep that for as long as the number lives: `mse_loss` of
a million values takes four megabytes until the loss is let go of. Whether this version of torch
does so is found by a try on a few numbers of our own. Some have the differences in memory besides,
for as long as they add them up.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

_SIZE = 64
_TRIED = ("mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy")
_WITH_DIFFERENCES = ("mse_loss", "smooth_l1_loss", "huber_loss")


class Extra(NamedTuple):
    """What an operation takes beyond its result.

    Attributes:
        kept: Bytes that its result keeps.
        passing: Bytes that are given back as it ends.
    """

    kept: int
    passing: int


class Reductions:
    """What the losses of this version of torch take."""

    def __init__(self, torch: ModuleType) -> None:
        few = torch.zeros(_SIZE, dtype=torch.float32, device="cpu")
        self._wide = set()
        for name in _TRIED:
            number = getattr(torch.nn.functional, name)(few, few)
            if number.untyped_storage().nbytes() >= few.untyped_storage().nbytes():
                self._wide.add(getattr(torch.ops.aten, name).default)
        aten = torch.ops.aten
        self._passing = {getattr(aten, name).default for name in _WITH_DIFFERENCES}

    def cost_of(self, func: object, args: tuple[Any, ...], result: Any) -> Extra | None:
        """What one operation takes, if it is one of these and has made a number."""
        is_wide, is_passing = func in self._wide, func in self._passing
        if not (is_wide or is_passing) or result.dim() or not args[0].dim():
            return None
        numbers = max(args[0].numel(), args[1].numel())  # they may be stretched to fit each other
        size = numbers * result.element_size()
        return Extra(size if is_wide else 0, size if is_passing else 0)
