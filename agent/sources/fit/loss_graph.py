"""How the training makes its loss, read from the autograd graph of a live one.

Rules of this file: `read_loss` runs in the training thread, as a backward pass begins: it looks at
a few nodes between the loss and what the model returned, at their names and plain numbers, and
unpacks no saved tensor. `LossPlan.make` does the same operations again, on tensors without data.

The script's loss cannot be called again: it is code around the model. What it costs is in the
graph, though: each node names the operation that made it. The common ones are repeated exactly.
Where a node is not known, the sum of what has been made so far stands in for the rest; the answer
says so, and misses what that rest keeps and makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from ..calls.backward.graph_nodes import inputs_of
from ..torch_types import Dtype, Node, Tensor

_MOST_NODES = 200
_ELEMENTWISE = {
    "MseLossBackward0": "mse_loss",
    "SmoothL1LossBackward0": "smooth_l1_loss",
    "HuberLossBackward0": "huber_loss",
    "BinaryCrossEntropyWithLogitsBackward0": "binary_cross_entropy_with_logits",
    "BinaryCrossEntropyBackward0": "binary_cross_entropy",
}
_VIEWS = frozenset({"ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"})
_OF_NUMBERS = frozenset(
    {"DivBackward0", "MulBackward0", "MeanBackward0", "SumBackward0", "NegBackward0"}
)
_FACTS = ("dim", "start", "end", "step", "index", "dim0", "dim1", "reduction")
_REDUCTIONS = ("none", "mean", "sum")
_SIGN = 1 << 63
RESULT = -1
"""The place of what the model returned, before the first operation."""


class LossNode(NamedTuple):
    """One operation between the model's result and the loss."""

    name: str
    facts: dict[str, int]


class LossPlan(NamedTuple):
    """How a loss is made.

    Attributes:
        place: Which of the tensors that the model returned it begins with.
        nodes: The operations, in the order in which they are done.
        unknown: The first of them that cannot be repeated.
        branches: Whether the graph has ways that are not followed.
        kept: The places of the operations whose results the script holds in the backward pass.
        given: By place, which of the tensors that the model was given an operation compares with.
    """

    place: int
    nodes: tuple[LossNode, ...]
    unknown: str | None
    branches: bool
    kept: frozenset[int] = frozenset()
    given: Mapping[int, int] = MappingProxyType({})

    def describe(self) -> str:
        """The operations in words."""
        names = [node.name.removesuffix("0").removesuffix("Backward") for node in self.nodes]
        return " > ".join(names) or "as the model returns it"

    def make(
        self, results: list[Any], torch: ModuleType, labels: list[Any], given: Sequence[Any] = ()
    ) -> Any:
        """The loss of what the copy of the model has returned.

        Args:
            given: The tensors that the copy was given.
            labels: Gets what stands in for labels, which the script keeps for the whole step, and
                what else it keeps.
        """
        value = results[min(self.place, len(results) - 1)]
        dtype = torch.float32
        for place, node in enumerate(self.nodes):
            if node.name == self.unknown:
                break
            at = self.given.get(place)
            label = given[at] if at is not None and at < len(given) else None
            value = _repeat(node, value, dtype, torch, labels, label)
            if place in self.kept:
                labels.append(value)
        return value if value.dim() == 0 else value.sum()


def chain_of(loss: Any, results: list[object]) -> list[Any]:
    """The nodes from a loss down to what the model returned, without that.

    Args:
        results: The ``grad_fn`` of each tensor that the model returned.
    """
    chain: list[Any] = []
    at = loss.grad_fn
    while at is not None and len(chain) < _MOST_NODES and not any(at is node for node in results):
        chain.append(at)
        at = next(iter(inputs_of(at)), None)
    return chain


def labels_of(chain: list[Any]) -> list[Any]:
    """What some nodes of a loss compare with."""
    found = [getattr(node, "_saved_target", None) for node in chain]
    return [label for label in found if label is not None]


def read_loss(loss: Tensor, results: list[object], addresses: Sequence[int] = ()) -> LossPlan:
    """The operations of that chain.

    Args:
        addresses: Where the tensors lie that the model was given.
    """
    chain = chain_of(loss, results)
    ordered = tuple([LossNode(type(node).__name__, _facts_of(node)) for node in reversed(chain)])
    branches = any(len(inputs_of(node)) > 1 for node in chain)
    ends = inputs_of(chain[-1])[:1] if chain else [loss.grad_fn]
    place = next((i for i, node in enumerate(results) if any(node is end for end in ends)), 0)
    unknown = next((n.name for n in ordered if not _is_known(n.name)), None)
    given = {}
    for at, node in enumerate(reversed(chain)):
        label = getattr(node, "_saved_target", None)
        address = None if label is None else address_of(label)
        if address in addresses:
            given[at] = addresses.index(address)
    return LossPlan(place, ordered, unknown, branches, given=given)


def address_of(tensor: Tensor) -> int | None:
    """Where the memory of a tensor begins; None for one that has none of its own."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except (RuntimeError, NotImplementedError):
        return None


def _facts_of(node: Node) -> dict[str, int]:
    """The plain numbers that a node was made with."""
    facts = {}
    for name in _FACTS:
        number = getattr(node, f"_saved_{name}", None)
        if type(number) is int:  # kept without a sign
            facts[name] = number - 2 * _SIGN if number >= _SIGN else number
    return facts


def _is_known(name: str) -> bool:
    """Whether an operation can be repeated."""
    return name in _REPEATED or name in _ELEMENTWISE or name in _VIEWS or name in _OF_NUMBERS


def _label(shape: Any, value: Any, dtype: Dtype, torch: ModuleType, given: Any) -> Any:
    """What an operation compares with: what the model was given, too, or a tensor of its own."""
    if given is not None and given.numel() == math.prod(shape):
        return given.reshape(shape)
    return torch.empty(shape, dtype=dtype, device=value.device)


def _repeat(  # noqa: PLR0917 - all of it belongs to one operation
    node: LossNode, value: Any, dtype: Dtype, torch: ModuleType, labels: list[Any], given: Any
) -> Any:
    """Do one operation again."""
    name, facts = node
    if name in _OF_NUMBERS:
        is_reduction = name in {"MeanBackward0", "SumBackward0"} and value.dim()
        return value.mean() if is_reduction else value
    if name in _VIEWS:
        return value.reshape(-1, value.shape[-1]) if value.dim() > 2 else value
    if name in _ELEMENTWISE:
        target = _label(value.shape, value, value.dtype, torch, given)
        labels.append(target)
        reduce = _REDUCTIONS[facts.get("reduction", 1)]
        return getattr(torch.nn.functional, _ELEMENTWISE[name])(value, target, reduction=reduce)
    if name in _NLL:
        shape = value.shape[:1] + value.shape[2:]
        target = _label(shape, value, torch.int64, torch, given)
        labels.append(target)
        reduce = _REDUCTIONS[facts.get("reduction", 1)]
        return torch.nn.functional.nll_loss(value, target, reduction=reduce)
    return _REPEATED[name](value, facts, dtype)


_NLL = frozenset({"NllLossBackward0", "NllLoss2DBackward0"})
_REPEATED: dict[str, Callable[[Any, dict[str, int], Any], Any]] = {
    "LogSoftmaxBackward0": lambda x, facts, _: x.log_softmax(facts.get("dim", -1)),
    "NllLossBackward0": lambda x, _facts, _dtype: x,
    "NllLoss2DBackward0": lambda x, _facts, _dtype: x,
    "ToCopyBackward0": lambda x, _, dtype: x.to(dtype),
    "CloneBackward0": lambda x, _facts, _dtype: (
        x.contiguous().clone() if x.is_contiguous() else x.contiguous()
    ),
    "SliceBackward0": lambda x, facts, _: x.narrow(
        facts["dim"], *_span(x.shape[facts["dim"]], facts)
    ),
    "SelectBackward0": lambda x, facts, _: x.select(facts["dim"], facts.get("index", -1)),
    "TransposeBackward0": lambda x, facts, _: x.transpose(facts["dim0"], facts["dim1"]),
    "SqueezeBackward1": lambda x, facts, _: x.squeeze(facts.get("dim", -1)),
    "AliasBackward0": lambda x, _facts, _dtype: x,
}


def _span(length: int, facts: dict[str, int]) -> tuple[int, int]:
    """Where a slice begins and how long it is, in a dimension that may have another length."""
    start, end = facts.get("start", 0), facts.get("end", length)
    start = max(0, start + length if start < 0 else start)
    end = min(length, end + length if end < 0 else end)
    return start, max(0, end - start)
