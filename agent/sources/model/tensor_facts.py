"""How large tensors are and where they lie, without a look at their data.

Rules of this file: runs in any thread, beside a training: reads shape, type, device and whether
gradients are required, and nothing else, but for running statistics, which are small, and only in
main memory, where nobody waits for a device. An answer that torch refuses is NULL.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ....safety.guard import pass_on
from ..torch_types import Module, Tensor

_IMAGES = 4


class Sizes(NamedTuple):
    """Some tensors together; each counts once.

    Attributes:
        numbers: How many numbers they hold; None where one of them has no shape yet.
        trainable: How many of those require gradients.
    """

    numbers: int | None
    trainable: int | None
    bytes: int | None
    dtype: str | None
    device: str | None


def sizes_of(tensors: Iterable[Tensor]) -> Sizes:
    """Add tensors up."""
    distinct = list({id(tensor): tensor for tensor in tensors}.values())
    dtype = joined([name_of(tensor.dtype) for tensor in distinct])
    device = joined([str(tensor.device) for tensor in distinct])
    try:
        counts = [tensor.numel() for tensor in distinct]
        sizes = [count * t.element_size() for count, t in zip(counts, distinct, strict=True)]
    except (RuntimeError, ValueError):  # a lazy module's parameter, before its first call
        pass_on()
        return Sizes(None, None, None, dtype, device)
    pairs = zip(counts, distinct, strict=True)
    trainable = sum(count for count, tensor in pairs if tensor.requires_grad)
    return Sizes(sum(counts), trainable, sum(sizes), dtype, device)


def name_of(dtype: object) -> str:
    """A type of numbers as people write it."""
    return str(dtype).removeprefix("torch.")


def layout_of(tensor: Any) -> str | None:
    """How a tensor of four dimensions lies in memory; None of any other."""
    try:
        if tensor.dim() != _IMAGES:
            return None
        last = sys.modules["torch"].channels_last
        plain, is_last = tensor.is_contiguous(), tensor.is_contiguous(memory_format=last)
    except (RuntimeError, ValueError, TypeError):
        pass_on()
        return None
    if plain and is_last:
        return "either"
    return "contiguous" if plain else "channels_last" if is_last else "strided"


_STATISTICS = ("running_mean", "running_var")


def bad_statistics(module: Module) -> int | None:
    """How many numbers of a normalization's running statistics are NaN or infinite.

    Returns:
        None of a module without any, and of what is not in main memory.
    """
    torch = sys.modules["torch"]
    held = dict(module._buffers.items())  # a scripted module has no more than that of a dict
    tensors: list[Any] = [
        held[name] for name in _STATISTICS if type(held.get(name)) is torch.Tensor
    ]
    if not tensors or any(tensor.device.type != "cpu" for tensor in tensors):
        return None
    try:
        with torch.no_grad():
            return sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    except (RuntimeError, ValueError, TypeError):  # of a fake one, or a lazy module's
        pass_on()
        return None


def joined(names: Sequence[str]) -> str | None:
    """Each name once, in order; None when there is none."""
    return ", ".join(dict.fromkeys(names)) or None
