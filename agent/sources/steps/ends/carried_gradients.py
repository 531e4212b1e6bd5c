"""Passes that carry on the gradients of an earlier one: gradient caching, as of GradCache.

The script calls its model without gradients, makes the loss of detached results, and has the
gradients of those flow on through calls with gradients, by a surrogate of the loss: its product
with the new results. That is a number like a loss, and none.

Rules of this file: runs in the training thread, around backward passes; reads which tensors the
graph comes from and what its first nodes have saved, never what is in them, and keeps none alive.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ...calls.backward.graph_nodes import inputs_of, node_of
from ...numbers.number import saved_by
from ...torch_types import Module
from .hand_steps import leaves_of

_PATIENCE = 8
"""So many steps in which a model was called so, and nothing was carried on: it is something else,
such as a policy that acts."""
_MOST_NODES = 16
_PRODUCTS = {
    "DotBackward0": ("self", "tensor"),
    "MulBackward0": ("self", "other"),
    "VdotBackward0": ("self", "other"),
}
"""The operations by which a surrogate is made, and what they save."""


class CarriedGradients:
    """Knows a surrogate from a loss, and the calls that belong to it from an evaluation.

    Attributes:
        is_called: Whether a root was called in the step as `called` is told of it: while none was,
            nothing else here is to be asked.
    """

    def __init__(self) -> None:
        self.is_called = False
        self._feeding: weakref.WeakSet[Any] = weakref.WeakSet()
        self._called: weakref.WeakSet[Any] = weakref.WeakSet()
        self._leaves: list[weakref.ref[Any]] = []
        self._gradients: list[weakref.ref[Any]] = []  # of those, their storages
        self._is_proven = False  # in the step in progress
        self._missed = 0

    def called(self, root: Module) -> bool:
        """A root module in training mode is called without gradients, before any of the step.

        Returns:
            Whether its results are known to be what the step is trained by.
        """
        if self._missed < _PATIENCE:
            self._called.add(root)
            self.is_called = True
        return root in self._feeding

    def carries_on(self, losses: Iterable[Any], given: Iterable[Any]) -> bool:
        """Whether the pass that begins carries on what an earlier one of the step has made.

        Args:
            losses: What it begins with.
            given: The gradients that the script gives for them.
        """
        if not self._called:
            return False
        gradients = [one for reference in self._gradients if (one := reference()) is not None]
        if gradients:
            read = [_storage(tensor) for tensor in (*given, *_factors_of(losses))]
            if any(one is gradient for one in read for gradient in gradients):
                self._is_proven = True
                return True
        parameter = sys.modules["torch"].nn.Parameter
        leaves = [leaf for leaf in leaves_of(losses) if not isinstance(leaf, parameter)]
        self._leaves += [weakref.ref(leaf) for leaf in leaves if leaf.numel() > 1]
        return False

    def is_sum_of_all(self, losses: list[Any]) -> bool:
        """Whether a pass only sets off hooks that carry on what earlier ones have made.

        It begins with a number that comes from nothing: the loss, detached from all.
        """
        is_alone = all(node_of(loss) is None for loss in losses)
        return is_alone and bool(self._gradients) and bool(losses)

    def pass_ended(self) -> None:
        """A pass has ended: the gradients of tensors that are no parameters are there.

        The script may keep them longer than those tensors.
        """
        if self._leaves:
            alive = [leaf for reference in self._leaves if (leaf := reference()) is not None]
            storages = [_storage(leaf.grad) for leaf in alive]
            self._gradients += [weakref.ref(one) for one in storages if one is not None]
            self._leaves.clear()

    def step_ended(self) -> None:
        """Was anything carried on in the step?"""
        self.is_called = False
        if not self._called:
            return
        if self._is_proven:
            self._missed = 0
            self._feeding.update(self._called)
        else:
            self._missed += 1
            for root in self._called:
                self._feeding.discard(root)
        self._is_proven = False
        self._called.clear()
        self._leaves.clear()
        self._gradients.clear()


def _factors_of(losses: Iterable[Any]) -> Iterator[Any]:
    """The tensors that numbers were made of by multiplying, as far as their last few nodes tell."""
    waiting = [node for loss in losses if (node := node_of(loss)) is not None]
    seen = 0
    while waiting and seen < _MOST_NODES:
        node = waiting.pop(0)
        seen += 1
        for name in _PRODUCTS.get(node.name(), ()):
            tensor = saved_by(node, name)
            if tensor is not None:
                yield tensor
        waiting += inputs_of(node)


def _storage(tensor: Any) -> Any:
    """The storage of a plain tensor; None of any other."""
    torch: Any = sys.modules["torch"]
    is_plain = type(tensor) in {torch.Tensor, torch.nn.Parameter}
    return tensor.untyped_storage() if is_plain and tensor.layout is torch.strided else None
