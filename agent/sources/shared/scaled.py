"""What a gradient scaler has multiplied losses with, as the graphs behind them tell.

Rules of this file: runs in the training threads, never waits for a device. Nodes are known by their
numbers, so that no graph is kept alive; the scales are the scaler's own.
"""

from __future__ import annotations

from typing import Any

from ..torch_types import Tensor

_MOST_SCALED = 64
"""How many losses are remembered between two updates."""
_MOST_NODES = 32
"""Of a loss, how many are looked at."""
_PRODUCT = "MulBackward0"
_FACTORS = frozenset({"Div", "Mul"})
_THROUGH = _FACTORS | {
    "Add", "Alias", "Cat", "Clone", "Expand", "Mean", "Neg", "ReshapeAlias", "Rsub", "Select",
    "Slice", "Squeeze", "Stack", "Sub", "Sum", "ToCopy", "Unbind", "Unsqueeze", "View",
}  # fmt: skip
"""The operations whose result has the scale in it that all that goes into them has, by the names of
their nodes without what they end with. Of factors, one has it."""

_IN_PARTS: Any = object()
"""Stands for the scale of what has none as a whole, but parts that were scaled."""


class Scaled:
    """The results that were scaled since the scaler was last updated.

    Attributes:
        scales: What each was multiplied with, by the number of its node.
    """

    def __init__(self) -> None:
        self.scales: dict[int, Tensor] = {}

    def add(self, result: Tensor, scale: Tensor) -> None:
        """One more; who has none behind it trains nothing."""
        node = result.grad_fn
        if node is not None:
            if len(self.scales) >= _MOST_SCALED:
                self.scales.clear()
            self.scales[node._sequence_nr()] = scale

    def scale_at(self, node: Any) -> Tensor | None:
        """What a node itself has multiplied a loss with, if it is one of those."""
        scale = self.scales.get(node._sequence_nr())
        # Nodes that other threads have made may have the same numbers.
        return scale if scale is not None and node.name() == _PRODUCT else None

    def scale_in(self, node: Any) -> tuple[Tensor | None, bool]:
        """What is in the result of a node.

        Returns:
            The scale that was met last, and whether all of the result has it, and no other.
        """
        scale = self.scale_at(node)  # as it mostly is
        if scale is not None:
            return scale, True
        look = _Look(self)
        found = look.at(node)
        return look.last, found is not None and found is not _IN_PARTS


class _Look:
    """One look at the first few nodes behind a loss.

    Attributes:
        last: The scale that was met last.
    """

    def __init__(self, scaled: Scaled) -> None:
        self._scaled = scaled
        self._left = _MOST_NODES
        self.last: Tensor | None = None

    def at(self, node: Any) -> Tensor | None:
        """What is in the result of a node; None where nothing was scaled, as far as is seen."""
        scale = self._scaled.scale_at(node)
        if scale is not None:
            self.last = scale
            return scale
        self._left -= 1
        kind, _, number = node.name().partition("Backward")  # one of a script's own has no number
        if self._left <= 0 or not number or kind not in _THROUGH:
            return None
        parts = node.next_functions[:1] if kind == "Div" else node.next_functions
        # What has no gradients is no part, such as the 0 that `sum` begins with.
        found = [self.at(part) for part, _ in parts if part is not None]
        known = [one for one in found if one is not None]
        if not known:
            return None
        is_whole = len(known) == (1 if kind in _FACTORS else len(found))
        return known[0] if is_whole and all(one is known[0] for one in known) else _IN_PARTS
