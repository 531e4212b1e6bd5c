"""Numbers that are read from tensors of one element: losses, norms, scales.

Rules of this file: runs in the training threads; never waits for a device, changes no tensor and
keeps none alive. A tensor of a subclass is not read: to look at one may start a collective. Of a
DTensor of which each rank has the whole, such as FSDP2's norm, the rank's own is.
"""

from __future__ import annotations

import sys
from typing import Any

from ....ring.format import NULL_FLOAT
from ....safety.guard import pass_on
from ..accelerator import Accelerator, PendingNumber
from ..shared.scaled import Scaled
from ..torch_types import Node, Tensor

_SUM = 2
"""How torch writes down that a loss was summed."""
_MOST_DIVISIONS = 3
_DIVIDING = frozenset({"DivBackward0", "MulBackward0"})
_BY_ELEMENT = ("MseLoss", "SmoothL1Loss", "HuberLoss")
"""Losses whose mean is over all elements."""


class Number:
    """A number that is here, or on its way.

    Attributes:
        here: It; None while nobody has seen it come.
    """

    __slots__ = ("_pending", "_scale", "_value", "here")

    def __init__(self, value: float, pending: PendingNumber | None = None) -> None:
        self._value = value
        self._pending = pending
        self._scale: Number | None = None
        self.here = None if pending is not None else value

    def read(self) -> float | None:
        """The number; None while it is on its way, which is asked without waiting."""
        if self.here is not None:
            return self.here
        pending = self._pending  # another thread may see it come meanwhile
        if pending is not None:
            if not pending.is_here():
                return None
            self._value, self._pending = pending.value(), None
        value = self._value
        if self._scale is not None:
            scale = self._scale.read()
            if scale is None:
                return None
            value = value / scale if scale else NULL_FLOAT  # nothing of it is left
        self.here = value
        return value

    def over(self, scale: Number) -> Number:
        """This number, divided by another one; the same object."""
        self._scale, self.here = scale, None
        return self


class Missed(Number):
    """One that was not brought, for too many were on their way: NULL, which its row counts."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(NULL_FLOAT)


def known_of(number: Any) -> Any:
    """What is read later, if it is here; a number that was on its way is not asked for again."""
    if type(number) is Number and (number.here is not None or number._pending is not None):
        return number.here
    return number.read()


def read_number(tensor: Tensor, accelerator: Accelerator) -> Number | None:
    """The number in a tensor; None where there is none to be read."""
    torch: Any = sys.modules["torch"]
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        tensor = _own_of(tensor)
    if tensor is None or tensor.numel() != 1:
        return None
    if not tensor.is_cpu:
        return None if tensor.dtype.is_complex else _read(tensor, accelerator)
    try:
        value = tensor.item()
    except RuntimeError:  # such as of a layout that torch reads no single number from
        pass_on()
        return None
    return None if type(value) is complex else Number(value)


def _own_of(tensor: Any) -> Any:
    """What this rank has of a DTensor that each rank has whole; None of any other."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    if type(tensor) is not kind or not all(one.is_replicate() for one in tensor.placements):
        return None
    own = tensor._local_tensor
    # One of another class may still be on its way from the other ranks.
    return own if type(own) is sys.modules["torch"].Tensor else None


def _read(tensor: Tensor, accelerator: Accelerator) -> Number | None:
    """The number in a tensor of one element; None where it cannot be had now."""
    if tensor.is_cpu:  # every call of torch costs 5 us once the caches have forgotten it
        return Number(tensor.item())
    if tensor.is_meta:
        return None
    pending = accelerator.copy_number(tensor)
    return None if pending is None else Number(NULL_FLOAT, pending)


def share_of(node: Any, accelerator: Accelerator, scaled: Scaled | None = None) -> Number | None:
    """What part of its step's loss a micro-batch's loss is; None where it stands for itself.

    Read from the nodes that made it: ``loss / 4`` and ``loss * 0.25`` are a quarter of it, and a
    cross entropy or squared error that was summed and divided by a number of tokens or elements, as
    for those of all micro-batches, is that part of it which its own are.

    Args:
        scaled: What a gradient scaler has multiplied, which is no part for that.
    """
    if node is None or node.name() not in _DIVIDING:  # as mostly
        return None
    node, divisor, total = _divided(node, scaled if scaled is not None and scaled.scales else None)
    if total is None and divisor == 1.0:
        return None
    summed = _summed_in(node)
    if summed is None:
        return None if total is not None or not divisor else Number(1.0 / divisor)
    share = Number(float(summed)) if type(summed) is int else _read(summed, accelerator)
    whole: Number | None = Number(divisor)
    if total is not None:
        read = _read(total, accelerator)
        whole = read.over(Number(1.0 / (divisor or 1.0))) if read is not None else None
    return None if share is None or whole is None else share.over(whole)


def _divided(node: Any, scaled: Scaled | None) -> tuple[Any, float, Any]:
    """The node whose result was divided, and what by: what is here, and what is on a device."""
    divisor, total = 1.0, None
    for _ in range(_MOST_DIVISIONS + (scaled is not None)):
        kind = node.name() if node is not None else ""
        if kind not in _DIVIDING:
            break
        if scaled is None or scaled.scale_at(node) is None:
            other = saved_by(node, "other")
            if other is None or other.dim() != 0 or other.is_complex():
                break
            if other.requires_grad:
                pass  # what is learned, such as a temperature, divides no window
            elif other.device.type == "cpu":
                number = other.item()
                divisor *= number if kind == "DivBackward0" else 1.0 / (number or 1.0)
            elif total is None and kind == "DivBackward0":
                total = other
            else:
                break
        node = next((before for before, _ in node.next_functions if before is not None), None)
    return node, divisor, total


def _summed_in(node: Any) -> Any:
    """By how much a loss that was summed would have been divided for its mean."""
    kind = node.name().removesuffix("Backward0") if node is not None else ""
    is_known = kind in _BY_ELEMENT or kind.startswith("NllLoss")
    if not is_known or node._saved_reduction != _SUM:
        return None
    if kind not in _BY_ELEMENT:
        return saved_by(node, "total_weight")
    elements = saved_by(node, "self")
    return None if elements is None else elements.numel()


def saved_by(node: Node, name: str) -> Any:
    """A tensor that a node has saved; None for one that is with hooks of somebody's."""
    raw = getattr(node, f"_raw_saved_{name}")
    is_hooked = getattr(raw, "unpack_hook", None) is not None
    return None if is_hooked else getattr(node, f"_saved_{name}")
