"""Refuses a sequence that is longer than a model's table of positions.

Rules of this file: sees operations on tensors without data, and changes none.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

from ....errors import FitRefused
from ..torch_types import Tensor


class Positions:
    """Finds tables of positions that a longer sequence would reach beyond.

    A look-up on tensors without data never fails, so the numbers that `arange` makes are followed
    to it.
    """

    def __init__(self, torch: ModuleType) -> None:
        aten = torch.ops.aten
        self._range, self._table = aten.arange, aten.embedding.default
        self._same = frozenset({aten._to_copy, aten.clone, aten.repeat})
        self._counts: dict[int, tuple[Any, int]] = {}  # by storage, with a weak reference to it

    def see(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Note one operation.

        Raises:
            FitRefused: It reads beyond the end of a table.
        """
        if func is self._table:
            rows, wanted = args[0].shape[0], self._count_of(args[1])
            if wanted > rows:
                raise FitRefused(
                    f"its table of positions has {rows} rows and would need {wanted}",
                    help=f"The longest sequence that this model can be given is {rows}.",
                )
        elif func.overloadpacket is self._range:
            start = args[0] if len(args) > 1 and isinstance(args[1], int) else 0
            self._note(result, start + result.numel())
        elif func.overloadpacket in self._same and args:
            count = self._count_of(args[0])
            if count:
                self._note(result, count)

    def _count_of(self, tensor: Tensor) -> int:
        """Up to where the numbers in a tensor go, if they are a range; else 0."""
        storage = tensor.untyped_storage()
        reference, count = self._counts.get(storage._cdata, (None, 0))
        return count if reference is not None and reference() is storage else 0

    def _note(self, tensor: Tensor, count: int) -> None:
        storage = tensor.untyped_storage()
        self._counts[storage._cdata] = (weakref.ref(storage), count)
