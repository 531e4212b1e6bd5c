"""Finds the nodes of autograd's graph behind what a module was given, or gave; what one tells.

Rules of this file: looks at the first few tensors only, and at no value in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...torch_types import Node

_MOST_TENSORS = 4
"""How many of a module's outputs, and of its inputs, are looked at."""
_LEVELS = 2
"""Of containers, one in another, in which they are looked for."""


def nodes_of(value: Any, tensor: Any) -> list[Any]:
    """The nodes of the first few tensors; `tensor` is the type whose objects are looked at."""
    if type(value) is tensor:
        node = value.grad_fn
        return [] if node is None else [node]
    found: list[Any] = []
    _collect(value, found, tensor, levels=_LEVELS)
    return found


def nodes_given(args: tuple[object, ...], kwargs: dict[str, object], tensor: Any) -> list[Any]:
    """The same of what a call was given: by position, or by name if there are none."""
    found: list[Any] = []
    # Neither is a container of the caller's.
    _collect(args, found, tensor, levels=_LEVELS + 1)
    if not found:
        _collect(kwargs, found, tensor, levels=_LEVELS + 1)
    return found


def node_of(end: Any) -> Any:
    """The node that a backward pass begins at for a tensor, or a `GradientEdge`; None without."""
    node = getattr(end, "grad_fn", None)
    return getattr(end, "node", None) if node is None else node


def leaf_at(node: Any) -> Any:
    """The tensor to which a node adds a gradient; None of any other node.

    That of a custom function is its `ctx`, which may have an attribute of that name, too.
    """
    return node.variable if node.name().endswith("AccumulateGrad") else None


def inputs_of(node: Node) -> list[Any]:
    """The nodes that gave it something with a gradient."""
    return [one for one, _ in node.next_functions if one is not None]


def shape_of(node: Node) -> tuple[int, ...] | None:
    """The shape of its result; None where this torch does not tell, or it has several."""
    results: Any = getattr(node, "_input_metadata", ())
    return tuple(results[0].shape) if len(results) == 1 else None


def sequence_nr(node: Node) -> int:
    """When a node was made."""
    number: int = node._sequence_nr()
    return number


def _collect(value: object, found: list[Any], tensor: Any, *, levels: int) -> None:
    """Add the nodes of the tensors in a container, or in those within it."""
    values: Iterable[Any] = ()
    item: Any
    if isinstance(value, tuple | list):
        values = value
    elif isinstance(value, dict):
        values = value.values()
    for item in values:
        if len(found) == _MOST_TENSORS:
            break
        if type(item) is tensor:
            if item.grad_fn is not None:
                found.append(item.grad_fn)
        elif levels > 1:
            _collect(item, found, tensor, levels=levels - 1)
