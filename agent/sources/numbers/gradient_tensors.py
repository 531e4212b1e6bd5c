"""What several sources ask of gradients: which can be read, and their norms.

Rules of this file: runs in the training thread, between the backward pass and what the optimizer
does with its gradients; changes no tensor. Nothing here waits for a device.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple


class Gradients(NamedTuple):
    """The gradients that an optimizer is about to use.

    Attributes:
        pairs: The parameters that have one that can be read, and those.
        left_out: How many have one that cannot: a sparse one, or one of a subclass of Tensor, to
            look at which may start a collective.
    """

    pairs: list[tuple[Any, Any]]
    left_out: int


def gradients_of(parameters: Sequence[Any]) -> Gradients:
    """The gradients of some parameters."""
    torch: Any = sys.modules["torch"]
    pairs, left_out = [], 0
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if is_plain(gradient, torch):
            pairs.append((parameter, gradient))
        else:
            left_out += 1
    return Gradients(pairs, left_out)


def parameters_of(optimizer: Any) -> list[Any]:
    """The parameters of an optimizer, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def is_plain(tensor: Any, torch: Any) -> bool:
    """Whether a tensor of numbers can be read without running anybody's code."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)
        and tensor.device.type != "meta"
    )


def norms_of(tensors: Sequence[Any]) -> list[Any]:
    """The Euclidean norm of each tensor, where it is; those of half precision in float32.

    One call of torch per device and type: for many small tensors that is ten times as fast.
    """
    torch: Any = sys.modules["torch"]
    groups: dict[tuple[Any, Any], list[int]] = {}
    for number, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(number)
    norms: list[Any] = [None] * len(tensors)
    with torch.no_grad():
        for (_, dtype), numbers in groups.items():
            wide = torch.float32 if dtype.itemsize < 4 else None
            found = torch._foreach_norm([tensors[n].detach() for n in numbers], 2, wide)
            for number, norm in zip(numbers, found, strict=True):
                norms[number] = norm
    return norms


def has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a step computes its gradients itself, so that there are none before it."""
    return kwargs.get("closure") is not None or (len(args) > 1 and args[1] is not None)
