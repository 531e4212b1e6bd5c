"""The storages behind a tensor of any kind.

Rules of this file: runs while the training stands still; reads where a storage is and how large,
never what is in it. No code of a subclass runs: what a wrapper, such as a sharded tensor, consists
of is read from its attributes. A tensor without memory of its own, such as one of the device meta,
has no part.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from ..torch_types import Tensor
from .living import MRO

REFUSALS = (RuntimeError, TypeError, ValueError, AttributeError)
_DEEPEST = 3


class Part(NamedTuple):
    """A storage, and a plain tensor over it."""

    address: int
    device: str
    bytes: int
    tensor: Any


def parts_of(tensor: Tensor, depth: int = 0) -> Iterator[Part]:
    """The storages that a tensor holds; call it while overrides of torch are disabled."""
    torch: Any = sys.modules["torch"]
    pieces: tuple[Any, ...] = ()
    part: Part | None = None
    try:
        pieces = _pieces(tensor, torch)
        part = None if pieces else _part(tensor)
    except REFUSALS:  # such as that of a wrapper, whose own storage is nowhere
        pass
    if part is not None:
        yield part
    elif depth < _DEEPEST:
        for piece in pieces or _inner(tensor, torch):
            yield from parts_of(piece, depth + 1)


def _part(tensor: Tensor) -> Part | None:
    """The storage of a tensor that has one in memory."""
    storage = tensor.untyped_storage()
    if storage.device.type == "meta":
        return None
    size, address = storage.nbytes(), storage.data_ptr()
    return Part(address, device_name(storage.device), size, tensor) if size and address else None


@functools.lru_cache(maxsize=64)
def device_name(device: object) -> str:
    """A device as torch writes it."""
    return str(device)


def _pieces(tensor: Tensor, torch: ModuleType) -> tuple[Any, ...]:
    layout = tensor.layout
    if layout is torch.strided:
        return ()
    if layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def _inner(tensor: Tensor, torch: ModuleType) -> list[Any]:
    """The tensors in the attributes of a wrapper, and that which a function of torch.func wraps."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return _transformed(tensor, torch)
    values = list(getattr(tensor, "__dict__", {}).values())
    for cls in MRO(kind):
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                values.append(cls.__dict__[name].__get__(tensor))
            except (KeyError, AttributeError):
                continue
    return [value for value in values if torch.Tensor in MRO(type(value))]


def _transformed(tensor: Tensor, torch: ModuleType) -> list[Any]:
    """What a tensor stands for inside of a function that is transformed."""
    functions = getattr(torch._C, "_functorch", None)
    try:
        if functions is None or not functions.is_functorch_wrapped_tensor(tensor):
            return []
        return [functions.get_unwrapped(tensor)]
    except REFUSALS:  # a wrapper whose function has ended
        return []
