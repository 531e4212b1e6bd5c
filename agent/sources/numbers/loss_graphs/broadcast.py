"""Whether a loss compares each prediction with each target, by the graph that it came from.

Rules of this file: runs in the training thread as a backward pass begins; reads the names and
shapes of the graph's nodes, and no tensor. What autograd does not show is no finding.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ...calls.backward.graph_nodes import inputs_of, shape_of

_MOST_NODES = 100
_DIFFERENCE = "SubBackward0"
_EXPANDED = "ExpandBackward0"
_ON_PURPOSE = ("Unsqueeze", "T", "Transpose", "Permute")
"""What lays predictions along another axis: a script that does so compares all pairs on purpose."""


class Broadcast(NamedTuple):
    """Predictions that were broadcast against their targets.

    Attributes:
        given: Their shape, `(n,)` or `(n, 1)`.
        whole: What came of it, `(n, n)`.
    """

    given: tuple[int, ...]
    whole: tuple[int, ...]


def broadcast_of(loss: Any) -> Broadcast | None:
    """The first difference of predictions and targets, seen from the loss, that has all pairs.

    A target has no gradient, so that the graph shows the prediction alone. A difference of two
    results of the model is none of these, nor is one whose prediction was laid along another axis.

    Args:
        loss: What `backward()` is called on.
    """
    todo: deque[tuple[Any, str]] = deque([(getattr(loss, "grad_fn", None), "")])
    met: set[Any] = set()
    while todo and len(met) < _MOST_NODES:
        node, user = todo.popleft()
        if node is None or node in met:
            continue
        met.add(node)
        name, before = node.name(), inputs_of(node)
        is_loss = user == _DIFFERENCE or "Loss" in user
        if name == _DIFFERENCE or (name == _EXPANDED and is_loss):
            found = _of_node(node, before)
            if found is not None:
                return found
        if not any(one.name().endswith("AccumulateGrad") for one in before):
            todo.extend((one, name if len(before) == 1 else "") for one in before)
    return None


def _of_node(node: Any, before: list[Any]) -> Broadcast | None:
    """What a node has done to its one operand with a gradient."""
    if len(before) != 1 or before[0].name().removesuffix("Backward0") in _ON_PURPOSE:
        return None
    whole, given = shape_of(node), shape_of(before[0])
    if whole is None or given is None or len(whole) != 2 or len({*whole}) > 1 or whole[0] < 2:
        return None
    return Broadcast(given, whole) if given in {whole[:1], (whole[0], 1)} else None
