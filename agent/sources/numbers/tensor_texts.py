"""Texts of tensors for the answer of an eval: what they are and statistics, not pages of numbers.

Rules of this file: runs while the training stands still, in the thread of the eval. The work is
bounded: of a large tensor a part is looked at, and the text says so. A tensor of a subclass is not
computed with, because that may start a collective.
"""

from __future__ import annotations

import sys
from typing import Any

from ..torch_types import Tensor
from .values import describe

_MOST_LOOKED_AT = 1 << 22
_FEW = 16
"""Of tensors with no more elements than these, the numbers are shown, too."""
_PLAIN = "torch.strided"


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of torch."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and tensor in type.__dict__["__mro__"].__get__(type(value))


def without_graph(value: Any) -> Any:
    """A value that can be kept: a tensor without the graph that made it."""
    return value.detach() if _is_plain(value) and value.grad_fn is not None else value


def tensor_text(tensor: Tensor, *, is_inner: bool = False) -> str:
    """What a tensor is, with statistics.

    Args:
        is_inner: Whether it stands within another value, in one line.
    """
    if not _is_plain(tensor):
        return describe(tensor)
    if tensor.dim() == 0 and tensor.device.type != "meta":
        return str(tensor.__repr__())
    head = _head(tensor)
    try:
        facts = _statistics(tensor)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        facts = f"no statistics: {str(error).partition(chr(10))[0][:80]}"
    text = f"{head}: {facts}" if facts else head
    is_small = 0 < tensor.numel() <= _FEW and tensor.device.type != "meta"
    return f"{text}\n{tensor.__repr__()}" if is_small and not is_inner else text


def _is_plain(value: object) -> bool:
    """Whether a value is a tensor whose methods are torch's own."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def _head(tensor: Tensor) -> str:
    """Class, type, size and place."""
    name = "Parameter" if type(tensor).__name__ == "Parameter" else "Tensor"
    sizes = ", ".join(map(str, tensor.shape))
    parts = [f"{name} {str(tensor.dtype).removeprefix('torch.')} [{sizes}] on {tensor.device}"]
    if str(tensor.layout) != _PLAIN:
        parts.append(str(tensor.layout).removeprefix("torch."))
    if tensor.requires_grad:
        parts.append("requires grad")
    return ", ".join(parts)


def _statistics(tensor: Tensor) -> str:
    """Least, greatest and mean of what is finite, and how much is not."""
    torch: Any = sys.modules["torch"]
    if tensor.device.type == "meta" or str(tensor.layout) != _PLAIN or not tensor.numel():
        return ""
    if tensor.dtype.is_complex or tensor.is_quantized:
        return ""
    with torch.no_grad():
        part = _part_of(tensor.detach())
        seen = f" (of {part.numel():,} of {tensor.numel():,} elements)"
        sampled = seen if part.numel() < tensor.numel() else ""
        if part.dtype is torch.bool:
            return f"{int(part.sum()):,} of {part.numel():,} true{sampled}"
        if not part.dtype.is_floating_point:
            return f"{_range(part.double())}{sampled}"
        wide = part.float() if part.element_size() < 4 else part
        finite = torch.isfinite(wide)
        bad = wide.numel() - int(finite.sum())
        kept = wide if not bad else wide[finite]
        known = _range(kept) if kept.numel() else "nothing finite"
        lost = f"{bad:,} not finite" if bad else "all finite"
        return f"{known}, {lost}{sampled}"


def _range(part: Any) -> str:
    """Least, greatest and mean."""
    low, high = (float(number) for number in part.aminmax())
    mean = float(part.mean(dtype=sys.modules["torch"].float64))
    return f"min {low:.6g}, max {high:.6g}, mean {mean:.6g}"


def _part_of(tensor: Tensor) -> Any:
    """A tensor of at most so many elements: the same, or evenly spread ones of it, not copied."""
    for dim in range(tensor.dim()):
        if tensor.numel() <= _MOST_LOOKED_AT:
            break
        wanted = -(-tensor.numel() // _MOST_LOOKED_AT)
        step = min(tensor.shape[dim], wanted)
        tensor = tensor[(slice(None),) * dim + (slice(None, None, step),)]
    return tensor
