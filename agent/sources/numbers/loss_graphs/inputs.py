"""Whether a loss gets what it does not expect, such as probabilities for logits, by its graph.

Rules of this file: runs in the training thread as a backward pass begins; reads the names, shapes
and plain numbers of the graph's nodes, and no tensor. What autograd does not show is no finding: a
function of the script's own, compiled code, activation checkpoints that are functions.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from .....messages.loss_inputs import SCORES, SIGMOID, SOFTMAX, LossInput
from ...calls.backward.graph_nodes import inputs_of, shape_of

_MOST_NODES = 100
_KIND = re.compile(r"(\w+?)Backward\d+")
"""The name of a node of torch's own; one of a script's own function has no number."""
_SINK = "_DDPSinkBackward"
"""What DistributedDataParallel puts behind its results, where parameters may be unused."""
_HANDED_ON = frozenset(
    {
        *("Alias", "AsStrided", "Cat", "Clone", "ConstantPadNd", "Expand", "Index", "IndexSelect"),
        *("MaskedFill", "MaskedSelect", "PackPaddedSequence", "Permute", "ReshapeAlias", "Select"),
        *("Slice", "Split", "SplitWithSizes", "Squeeze", "Stack", "T", "ToCopy", "Transpose"),
        *("Unbind", "UnsafeSplit", "UnsafeView", "Unsqueeze", "View"),
    }
)
"""These give on what they get, in another place, order, shape or type."""
_REDUCED = frozenset({"Mean", "Sum"})
_ARITHMETIC = _REDUCED | {"Add", "Div", "Gather", "Mul", "Neg", "Rsub", "Sub", "Where"}
"""What stands between what a pass begins with and the functions of losses."""
_NLL = frozenset({"NllLoss", "NllLoss2D"})
_SCORES = frozenset({"Addbmm", "Addmm", "Baddbmm", "Bmm", "Convolution", "Linear", "Mm"})
_SIGN = 1 << 63


def loss_input_of(loss: Any) -> LossInput | None:
    """The first function of a loss, seen from where the pass begins, that gets what it should not.

    Args:
        loss: What `backward()` is called on.
    """
    todo: deque[tuple[Any, str, bool]] = deque([(getattr(loss, "grad_fn", None), "", False)])
    met: set[Any] = set()
    scored, kinds = None, set[str]()
    while todo and len(met) < _MOST_NODES:
        node, user, is_summed = todo.popleft()
        if node is None or node in met:
            continue
        met.add(node)
        kind = _kind_of(node)
        kinds.add(kind)
        found = _given_to(node, kind, user, is_summed=is_summed)
        if found is not None and found.maker != SCORES:
            return found
        scored = scored or found
        if kind in _ARITHMETIC or kind in _HANDED_ON or kind in _NLL:
            is_summed |= kind in _REDUCED and shape_of(node) == ()
            user = kind if kind in _NLL else user
            todo.extend((one, user, is_summed) for one in inputs_of(node))
    return None if "Logsumexp" in kinds else scored  # which a script may add by itself


def _given_to(node: Any, kind: str, user: str, *, is_summed: bool) -> LossInput | None:
    """What a function of a loss is given, where it should not be.

    Args:
        user: Which loss it is for, where that is known.
        is_summed: Whether all that is behind it is added up to one number.
    """
    if kind == "LogSoftmax":
        maker = _maker_of(node.next_functions[0][0])
        loss = "cross_entropy" if user in _NLL else "log_softmax"
        return LossInput(loss, maker, _classes_of(node)) if maker in {SOFTMAX, SIGMOID} else None
    if kind == "BinaryCrossEntropyWithLogits":
        maker = _maker_of(node.next_functions[0][0])
        loss = "binary_cross_entropy_with_logits"
        return LossInput(loss, maker) if maker in {SOFTMAX, SIGMOID} else None
    if kind in _NLL:
        maker = _maker_of(node.next_functions[0][0])
        return LossInput("nll_loss", maker) if maker else None
    if is_summed and kind in {"Sub", "Mul"}:
        maker = _maker_of(_compared(node, kind))
        return LossInput("kl_div", maker) if maker else None
    return None


def _compared(node: Any, kind: str) -> Any:
    """The input of a divergence that ends with a node; None where it is none.

    `kl_div` is no node of its own: it is `xlogy(t, t) - t * input`, and with `log_target` it is
    `exp(t) * (t - input)`. A target without gradients is not seen, nor is what comes of it alone.
    """
    first, second = (one for one, _ in node.next_functions[:2])
    inner = "Mul" if kind == "Sub" else "Sub"
    if second is None or _kind_of(second) != inner:
        return None
    target, given = (one for one, _ in second.next_functions[:2])
    if first is None:
        return given if target is None else None
    is_target = kind == "Sub" and _kind_of(first) == "Xlogy"
    return given if is_target and first.next_functions[0][0] is target else None


def _maker_of(node: Any) -> str:
    """What has made a tensor that was only handed on since; empty where that is not one thing."""
    todo, makers = deque([node]), set[str]()
    for _ in range(_MOST_NODES):
        if not todo:
            break
        at = todo.popleft()
        kind = "" if at is None else _kind_of(at)
        if kind in _HANDED_ON:
            todo.extend(inputs_of(at))
        else:
            makers.add(_maker(at, kind))
    return makers.pop() if len(makers) == 1 else ""


def _maker(node: Any, kind: str) -> str:
    if kind in {"Softmax", "Sigmoid"}:
        return SOFTMAX if kind == "Softmax" else SIGMOID
    given = [] if node is None else inputs_of(node)
    if kind == "Exp" and [_kind_of(one) for one in given] == ["LogSoftmax"]:
        return SOFTMAX
    if kind == "Div" and len(given) == 2 and _kind_of(given[1]) == "Sum":  # made by hand
        return SOFTMAX if _kind_of(given[0]) == "Exp" and given[:1] == inputs_of(given[1]) else ""
    return SCORES if kind in _SCORES else ""


def _classes_of(node: Any) -> int | None:
    """How many classes a softmax has."""
    shape, dim = shape_of(node), node._saved_dim
    place = dim - 2 * _SIGN if dim >= _SIGN else dim  # kept without a sign
    return shape[place] if shape else None


def _kind_of(node: Any) -> str:
    """The function that has made a node; empty for one that is not torch's own."""
    name = node.name()
    found = _KIND.fullmatch(name)
    return "Alias" if name == _SINK else "" if found is None else found[1]
