"""What several sources ask of gradients: which can be read, and their norms.

Rules of this file: runs in the training thread, between the backward pass and what the optimizer
does with its gradients; changes no tensor. Nothing here waits for a device.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from ....ring.format import NULL_FLOAT, NULL_INT
from ..accelerator import free_bytes
from ..calls.names.module_names import outermost, walk
from ..shared.found import found_roots
from ..shared.recording import Recording
from ..torch_types import Optimizer, Tensor

_PIECE = 1 << 24
_LOOKED_AT = 1 << 16
_MOST_COPIED = 256 << 20
_PART_OF_FREE = 8
_SURE_NORM = 2.0**-60
"""Below it squares of float32 lose bits: a norm of 0 need not mean that all elements are."""


class Gradients(NamedTuple):
    """The gradients that an optimizer is about to use.

    Attributes:
        pairs: The parameters that have one that can be read, and those.
        left_out: How many have one that cannot: a sparse one, or one of a subclass of Tensor, to
            look at which may start a collective.
    """

    pairs: list[tuple[Any, Any]]
    left_out: int


def gradients_of(parameters: Sequence[Tensor]) -> Gradients:
    """The gradients of some parameters."""
    return readable((p, p.grad) for p in parameters if p.grad is not None)


def readable(pairs: Iterable[tuple[Tensor, Tensor]]) -> Gradients:
    """Those of some parameters and their gradients that can be read."""
    torch: Any = sys.modules["torch"]
    found = list(pairs)
    plain = [(parameter, gradient) for parameter, gradient in found if is_plain(gradient, torch)]
    return Gradients(plain, len(found) - len(plain))


def parameters_of(optimizer: Optimizer) -> list[Any]:
    """The parameters of an optimizer, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def is_plain(tensor: Tensor, torch: ModuleType) -> bool:
    """Whether a tensor of numbers can be read without running anybody's code."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_nested  # the older kind of those is strided, too
        and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)
        and tensor.device.type != "meta"
    )


def is_zero(gradient: Tensor) -> bool:
    """Whether all elements are; False of what cannot be read without a collective."""
    return is_plain(gradient, sys.modules["torch"]) and not bool(gradient.detach().any())


def is_flat_shard(parameter: Any) -> bool:
    """Whether it is what this rank has of FSDP1's parameters, or a view of that.

    With `NO_SHARD` each rank has all of it, which a parameter does not tell.
    """
    return bool(getattr(parameter, "_fsdp_flattened", False))


def norms_of(tensors: Sequence[Tensor]) -> list[Any]:
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


def has_closure(args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a step computes its gradients itself, so that there are none before it."""
    return kwargs.get("closure") is not None or (len(args) > 1 and args[1] is not None)


def has_lost_squares(row: Mapping[str, Any], scale: float) -> bool:
    """Whether squares in a norm were too large or too small for float32, as its elements tell."""
    if math.isinf(row["norm"]):
        return bool(row["inf_count"] == row["nan_count"] == 0)
    return bool(row["norm"] * scale < _SURE_NORM and row.get("zero_share", 1.0) < 1)


def fill_elements(gradients: Sequence[tuple[Tensor, dict[str, Any]]], scale: float) -> None:
    """Fill in what a look at every element tells; in pieces, because each makes copies.

    A device is asked once for all of them: each question waits until it has done all it has to do,
    and where others use it, too, that is a turn of theirs.

    Args:
        gradients: Each with its row, whose norm is there.
    """
    torch: Any = sys.modules["torch"]
    asked: dict[Any, list[tuple[int, Any]]] = {}
    told = [_Elements() for _ in gradients]
    for number, (gradient, row) in enumerate(gradients):
        for piece in pieces_of(gradient):
            if piece.numel():
                counted = _counted(torch, piece, is_finite=math.isfinite(row["norm"]))
                together = torch.stack([one.double() for one in counted])
                asked.setdefault(piece.device, []).append((number, together))
    for pieces in asked.values():
        figures = torch.stack([counted for _, counted in pieces]).tolist()
        for (number, _), figure in zip(pieces, figures, strict=True):
            told[number].add(*figure)
    for one, (gradient, row) in zip(told, gradients, strict=True):
        row.update(one.columns(gradient.numel(), scale))


def _counted(torch: Any, piece: Tensor, *, is_finite: bool) -> tuple[Tensor, ...]:
    """The arguments of `_Elements.add`, where the piece is."""
    nonzero = torch.count_nonzero(piece)
    if is_finite:
        none = torch.zeros((), device=piece.device)
        low, high = torch.aminmax(piece)
        return none, none, nonzero, torch.maximum(low.abs(), high.abs()), none + 1
    finite = torch.isfinite(piece)
    largest = torch.where(finite, piece, 0).abs().max()
    return torch.isnan(piece).sum(), torch.isinf(piece).sum(), nonzero, largest, finite.any()


class _Elements:
    """What is known of the elements of one gradient."""

    def __init__(self) -> None:
        self._nans = self._infs = self._nonzero = 0
        self._largest: float | None = None

    def add(
        self, nans: float, infs: float, nonzero: float, largest: float, has_finite: float
    ) -> None:
        """Add those of a piece."""
        self._nans += int(nans)
        self._infs += int(infs)
        self._nonzero += int(nonzero)
        if has_finite:
            self._largest = largest if self._largest is None else max(self._largest, largest)

    def columns(self, count: int, scale: float) -> dict[str, Any]:
        """The columns."""
        return {
            "max_abs": NULL_FLOAT if self._largest is None or not scale else self._largest / scale,
            "nan_count": self._nans if count else NULL_INT,
            "inf_count": self._infs if count else NULL_INT,
            "zero_share": (count - self._nonzero) / count if count else NULL_FLOAT,
        }


def subnormal_shares(parameter: Any, gradient: Any, state: Mapping[Any, Any]) -> dict[str, float]:
    """What part of a gradient, its parameter, and the optimizer's state for it is subnormal."""
    kept = state.get(parameter)
    kept = [value for value in kept.values() if isinstance(value, type(gradient))] if kept else []
    found = {"": [gradient], "weight_": [parameter], "state_": kept}
    shares = {name: _subnormal_share(tensors) for name, tensors in found.items()}
    return {
        f"{name}subnormal_share": NULL_FLOAT if share is None else share
        for name, share in shares.items()
    }


def _subnormal_share(tensors: Sequence[Any]) -> float | None:
    """What part of some tensors is subnormal, of some tens of thousands of elements of each.

    None where no tensor is in main memory, in single precision or more. Where the processor takes
    such numbers for 0, as `torch.set_flush_denormal` has it, there are none.
    """
    torch: Any = sys.modules["torch"]
    seen = found = 0
    with torch.no_grad():
        for tensor in tensors:
            is_wide = is_plain(tensor, torch) and tensor.dtype in (torch.float32, torch.float64)
            if not is_wide or tensor.device.type != "cpu" or not tensor.is_contiguous():
                continue
            stride = 1 + tensor.numel() // _LOOKED_AT
            size = tensor.detach().view(-1)[::stride].abs()
            found += int(((size > 0) & (size < torch.finfo(size.dtype).tiny)).sum())
            seen += size.numel()
    return found / seen if seen else None


def copies_of(parameters: Sequence[Tensor]) -> dict[int, Any]:
    """Copies of weights by ``id(parameter)``, as far as memory allows."""
    torch: Any = sys.modules["torch"]
    room, copies = _MOST_COPIED, {}
    free = free_bytes(parameters[0].device) if parameters else None
    if free is not None:
        room = min(room, free // _PART_OF_FREE)
    with torch.no_grad():
        for parameter in parameters:
            if is_plain(parameter, torch) and parameter.nbytes <= room:
                room -= parameter.nbytes
                copies[id(parameter)] = parameter.detach().clone()
    return copies


class Names:
    """What parameters are called."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._asked: object = None
        self._uncalled: dict[int, tuple[str, str]] = {}

    def of(self, parameters: Iterable[Tensor], asked: object) -> dict[int, tuple[str, str]]:
        """By ``id(parameter)``: the name, and the class of the root.

        Args:
            parameters: Those that are to be named.
            asked: What the steps were asked for by; None where nobody did. Then models that are
                never called are looked for, too, as A3C's shared one: once, since it takes time.
        """
        found = _names_in(self._recording, self._recording.objects.roots.alive())
        if asked is None or all(id(parameter) in found for parameter in parameters):
            return found
        if asked is not self._asked:
            self._asked, self._uncalled = asked, _names_in(self._recording, found_roots())
        return self._uncalled | found


def _names_in(recording: Recording, roots: list[Any]) -> dict[int, tuple[str, str]]:
    """Those in some models."""
    found: dict[int, tuple[str, str]] = {}
    for root in outermost(roots):
        root_class = recording.objects.models.root_text(root)
        for path, module in walk(root, "", set()):
            for name, parameter in list(module._parameters.items()):
                place = f"{path}.{name}" if path else name
                found.setdefault(id(parameter), (place, root_class))
    return found


def pieces_of(tensor: Tensor) -> Any:
    """A large tensor, piece by piece, without a copy."""
    if tensor.dim() == 0 or tensor.numel() <= _PIECE:
        return [tensor]
    return tensor.split(max(1, _PIECE * tensor.shape[0] // tensor.numel()))


def fill_norms(values: list[dict[str, Any]], numbers: list[float]) -> None:
    """Put norms into their rows; the last number is the scale of the gradients."""
    count, scale = len(values), numbers[-1]
    norms, weights = numbers[:count], numbers[count : 2 * count]
    for row, norm, weight in zip(values, norms, weights, strict=True):
        row["norm"] = norm / scale if scale else NULL_FLOAT  # halved to 0, as a run diverges
        row.setdefault("weight_norm", weight)  # NULL already, where it cannot be read
