"""Numbers that are read from tensors of one element: losses, norms, scales.

Rules of this file: runs in the training threads; never waits for a device, changes no tensor and
keeps none alive. A tensor of a subclass is not read: to look at one may start a collective.
"""

from __future__ import annotations

import sys
from typing import Any

from ...ring import NULL_FLOAT
from .accelerator import Accelerator, PendingNumber


class Number:
    """A number that is here, or on its way."""

    __slots__ = ("_more", "_pending", "_scale", "_value")

    def __init__(self, value: float, pending: PendingNumber | None = None) -> None:
        self._value = value
        self._pending = pending
        self._scale: Number | None = None
        self._more: Number | None = None

    def is_here(self) -> bool:
        """Whether the value is known; asks without waiting."""
        if self._pending is not None and self._pending.is_here():
            self._value, self._pending = self._pending.value(), None
        parts = (self._scale, self._more)
        return self._pending is None and all(part is None or part.is_here() for part in parts)

    @property
    def value(self) -> float:
        """The number; `NULL_FLOAT` while it is not here."""
        if not self.is_here():
            return NULL_FLOAT
        value = self._value if self._scale is None else self._value / self._scale.value
        return value if self._more is None else value + self._more.value

    def over(self, scale: Number) -> Number:
        """This number, divided by another one, which is never 0; the same object."""
        self._scale = scale
        return self

    def plus(self, other: Number) -> Number:
        """This number and another one; the same object."""
        self._more = other if self._more is None else self._more.plus(other)
        return self


def read_number(tensor: Any, accelerator: Accelerator) -> Number | None:
    """The number in a tensor; None where there is none to be read."""
    torch: Any = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.numel() != 1:
        return None
    if not tensor.dtype.is_floating_point or tensor.device.type == "meta":
        return None
    if tensor.device.type == "cpu":
        return Number(tensor.item())
    pending = accelerator.copy_number(tensor)
    return None if pending is None else Number(NULL_FLOAT, pending)


def divisor_of(node: Any) -> float:
    """By what number a loss was divided last; 1.0 where it was not.

    Read from the node that made it: ``loss / 4`` and ``loss * 0.25`` both leave 4.0.
    """
    kind = node.name() if node is not None else ""
    if kind not in {"DivBackward0", "MulBackward0"}:
        return 1.0
    other = node._saved_other
    if other is None or other.dim() != 0 or other.device.type != "cpu":
        return 1.0
    number = float(other)
    if kind == "MulBackward0":
        return 1.0 / number if number else 1.0
    return number
