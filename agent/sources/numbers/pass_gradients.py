"""The gradients that a backward pass has made, where no optimizer of torch is to use them.

Rules of this file: runs in the training thread, as a pass has ended and while somebody has asked;
walks over the graph of the loss, whose nodes are there for as long as the script keeps the loss.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..calls.backward.graph_nodes import leaf_at, node_of
from ..model.variables import variable_of

_INPUTS = 4
"""Which argument of the engine says what the gradients are of."""
_MOST_NODES = 100_000


class PassGradients(NamedTuple):
    """What a pass has made.

    Attributes:
        pairs: Tensors and their gradients.
        places: What those may be called that belong to no module, by ``id(tensor)``.
    """

    pairs: list[tuple[Any, Any]]
    places: dict[int, str]


def gradients_of_pass(args: tuple[Any, ...], result: Any) -> PassGradients:
    """The gradients of a pass: those that it has returned, else those that it has added to.

    Args:
        args: What the engine was called with.
        result: What it has returned: of `torch.autograd.grad`, one gradient for each input.
    """
    inputs = [_leaf_of(one) for one in args[_INPUTS]] if len(args) > _INPUTS else []
    if result:
        pairs = [(i, g) for i, g in zip(inputs, result, strict=False) if i is not None]
    else:
        leaves = [i for i in inputs if i is not None] if inputs else _leaves_of(args[0])
        pairs = [(leaf, leaf.grad) for leaf in leaves]
    there = [(tensor, gradient) for tensor, gradient in pairs if gradient is not None]
    places = {
        id(tensor): variable_of(tensor) or f"tensor {number}"
        for number, (tensor, _) in enumerate(there)
    }
    return PassGradients(there, places)


def _leaf_of(given: Any) -> Any:
    """The leaf that gradients are asked of, maybe by its `GradientEdge`; None for what is none."""
    node = getattr(given, "node", None)
    leaf = given if node is None else leaf_at(node)
    return leaf if getattr(leaf, "is_leaf", False) else None


def _leaves_of(roots: tuple[Any, ...]) -> list[Any]:
    """The tensors whose `.grad` a pass adds to, in the order in which a model makes use of them."""
    waiting = [node for root in roots if (node := node_of(root)) is not None]
    seen = set(waiting)
    leaves: list[Any] = []
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if (leaf := leaf_at(node)) is not None:
            leaves.append(leaf)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return leaves[::-1]
