"""Shapes and types of the tensors in what a module was given, or has returned.

Rules of this file: runs in the training threads, in an observed call. Looks into built-in
containers and dataclasses only, by the built-in types' own methods, to a bounded depth and number;
reads no data and keeps no tensor.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

from ....safety.guard import pass_on
from ..model.tensor_facts import joined, layout_of, name_of

_MOST_TENSORS = 64
_SHOWN = 8
_DEEPEST = 6


class Tensors(NamedTuple):
    """The tensors of one value.

    Attributes:
        named: Where each stands in it, and its shape.
        dtypes: Their types, each once; None without any tensor.
        bytes: What they take; None where that is not known.
        layouts: How those with four dimensions lie, each way once; None without any.
    """

    named: tuple[tuple[str, tuple[int, ...]], ...]
    dtypes: str | None
    bytes: int | None
    layouts: str | None = None

    @property
    def text(self) -> str | None:
        """The shapes for the eye; names that are mere positions are left out."""
        if not self.named:
            return None
        texts = [
            str(list(shape)) if name.replace(".", "").isdecimal() else f"{name}={list(shape)}"
            for name, shape in ((name or "0", shape) for name, shape in self.named[:_SHOWN])
        ]
        more = len(self.named) - len(texts)
        return ", ".join([*texts, *([f"and {more} more"] if more else [])])


def read_tensors(value: object, torch: ModuleType) -> Tensors:
    """Shapes and types of all tensors in a value."""
    named, dtypes, layouts, total = [], [], [], 0
    is_known = True
    for name, tensor in _tensors_in(value, "", torch.Tensor, _DEEPEST):
        try:
            shape = tuple([int(size) for size in tensor.shape])
            size = math.prod(shape) * tensor.element_size()
        except (AttributeError, RuntimeError, TypeError, ValueError):  # of a nested one
            pass_on()
            is_known = False
            continue
        named.append((name, shape))
        dtypes.append(name_of(tensor.dtype))
        layouts.append(layout_of(tensor))
        total += size
        if len(named) == _MOST_TENSORS:
            break
    known = [layout for layout in layouts if layout is not None]
    total_bytes = total if named and is_known else None
    return Tensors(tuple(named), joined(dtypes), total_bytes, joined(known))


def _tensors_in(value: object, name: str, kind: type, depth: int) -> Iterator[tuple[str, Any]]:
    """Each tensor with the names that lead to it, joined by dots."""
    if isinstance(value, kind):
        yield name, value
        return
    if not depth:
        return
    inside: Any = ()
    if isinstance(value, dict):
        inside = dict.items(value)
    elif isinstance(value, tuple) and hasattr(type(value), "_fields"):
        fields: Any = type(value)
        inside = zip(fields._fields, value, strict=False)
    elif isinstance(value, (list, tuple)):
        inside = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = vars(value).items() if hasattr(value, "__dict__") else ()
    for key, item in list(islice(inside, _MOST_TENSORS)):  # as a list: it may change
        yield from _tensors_in(item, f"{name}.{key}" if name else str(key), kind, depth - 1)
