"""Looks for values that are not finite in what modules are given and give.

Rules of this file: runs in the training's threads while somebody has asked for it; each look waits
for the device. Changes no tensor and keeps none. A tensor of a subclass or inside of `vmap` is not
looked at, nor anything while a CUDA graph is captured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...accelerator import is_capturing
from ...torch_types import Tensor
from ..gradient_tensors import is_plain, pieces_of
from ..transformed import is_mapped

_MOST_TENSORS = 32
_LEVELS = 3


class Bad(NamedTuple):
    """What is wrong with a tensor.

    Attributes:
        name: Which one it is, such as ``0`` or ``attn_mask``.
        finite_max: Its largest finite absolute value; None where none is finite.
    """

    name: str
    nan_count: int
    inf_count: int
    numel: int
    finite_max: float | None
    shape: str


def tensors_in(value: Any, name: str = "", levels: int = _LEVELS) -> list[tuple[str, Any]]:
    """The first tensors in what a module was given or gave, each with its name."""
    torch: Any = sys.modules["torch"]
    if is_plain(value, torch):
        return [] if is_mapped(value) else [(name or "0", value)]
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, tuple | list):
        items = enumerate(value)
    elif isinstance(value, dict):
        items = value.items()
    found: list[tuple[str, Any]] = []
    if levels:
        for key, item in items:
            if len(found) >= _MOST_TENSORS:
                break
            found += tensors_in(item, f"{name}.{key}" if name else str(key), levels - 1)
    return found[:_MOST_TENSORS]


def first_bad(tensors: Iterable[tuple[str, Tensor]]) -> Bad | None:
    """The first tensor with values that are not finite."""
    for name, tensor in tensors:
        bad = look_at(name, tensor)
        if bad is not None:
            return bad
    return None


def look_at(name: str, tensor: Tensor) -> Bad | None:
    """What is wrong with a tensor; None when nothing is.

    One sum tells that all is well. A tensor without a gradient that holds minus infinity, and
    nothing else of the kind, is a mask.
    """
    torch: Any = sys.modules["torch"]
    if tensor.numel() == 0 or is_capturing():
        return None
    with torch.no_grad(), torch._C.DisableTorchFunction():
        plain = tensor.detach()
        wide = torch.float32 if plain.dtype.itemsize < 4 else None
        if bool(torch.isfinite(plain.sum(dtype=wide))):
            return None
        nans = infs = positive = 0
        largest: float | None = None
        for piece in pieces_of(plain):
            finite = torch.isfinite(piece)
            nans += int(torch.isnan(piece).sum())
            infs += int(torch.isinf(piece).sum())
            positive += int(torch.isposinf(piece).sum())
            if bool(finite.any()):
                here = float(torch.where(finite, piece, 0).abs().max())
                largest = here if largest is None else max(largest, here)
    is_mask = not (nans or positive or tensor.requires_grad)
    if not (nans or infs) or is_mask:
        return None
    return Bad(name, nans, infs, tensor.numel(), largest, shape_of(tensor))


def shape_of(tensor: Tensor) -> str:
    """Type and sizes: ``float32[8,128]``."""
    sizes = ",".join(map(str, tensor.shape))
    return f"{str(tensor.dtype).removeprefix('torch.')}[{sizes}]"


def largest_of(tensors: Iterable[tuple[str, Tensor]]) -> float | None:
    """The largest finite absolute value in some tensors."""
    torch: Any = sys.modules["torch"]
    largest: float | None = None
    with torch.no_grad(), torch._C.DisableTorchFunction():
        for _, tensor in tensors:
            for piece in pieces_of(tensor.detach()) if tensor.numel() else ():
                here = float(torch.where(torch.isfinite(piece), piece, 0).abs().max())
                largest = here if largest is None else max(largest, here)
    return largest
