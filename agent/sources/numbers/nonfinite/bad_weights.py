"""Which weights of the models are not finite, and whose they are.

Rules of this file: runs in the training thread, between two steps, or in one that saves; changes no
tensor. `look_at_weights` waits for no device, `bad_weights` for each.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from ...accelerator import Accelerator, is_capturing
from ...calls.names.class_names import parameters_in
from ...shared.recording import Recording
from ...torch_types import Module, Tensor
from ..gradient_tensors import is_plain, norms_of
from ..number import Number, read_number
from .finite import Bad, look_at
from .finite_hooks import Watched


class WeightsLook:
    """Whether weights are finite, which those on a device are asked without a wait.

    Args:
        is_bad: Whether one of those on the host is not.
        coming: The largest absolute value of those of each device; None where some cannot be had.
    """

    def __init__(self, *, is_bad: bool, coming: Sequence[Number | None]) -> None:
        self._is_bad = is_bad
        self._coming = coming

    def answer(self) -> bool | None:
        """What is known by now; None while the device has not come to it."""
        values = [None if number is None else number.read() for number in self._coming]
        if self._is_bad or any(value is not None and not math.isfinite(value) for value in values):
            return False
        return None if None in values else True


def look_at_weights(
    recording: Recording, roots: list[Module], accelerator: Accelerator
) -> WeightsLook:
    """Ask whether all parameters are finite."""
    torch: Any = sys.modules["torch"]
    there: dict[Any, list[Any]] = {}
    for weight in _weights_of(roots, torch):
        if weight.device.type != "cpu" and weight.numel():
            there.setdefault(weight.device, []).append(weight)
    coming: list[Number | None] = []
    with torch.no_grad():
        for weights in [] if is_capturing() else there.values():
            largest = torch._foreach_norm([weight.detach() for weight in weights], math.inf)
            widest = max((one.dtype for one in largest), key=lambda dtype: dtype.itemsize)
            stacked = torch.stack([one.to(widest) for one in largest])
            coming.append(read_number(stacked.max(), accelerator))
    if (there and not coming) or any(map(_is_unknown, _all_of(roots))):
        coming.append(None)
    is_bad = bool(bad_weights(recording, roots, reads_devices=False))
    return WeightsLook(is_bad=is_bad, coming=coming)


def _all_of(roots: list[Module]) -> list[Any]:
    return list({id(p): p for root in roots for p in parameters_in(root)}.values())


def _weights_of(roots: list[Module], torch: Any) -> list[Any]:
    """Those of them that can be read."""
    return [parameter for parameter in _all_of(roots) if is_plain(parameter, torch)]


def _is_unknown(parameter: Any) -> bool:
    """Whether nothing can be told of one, such as a DTensor; integers are always finite."""
    return parameter.is_floating_point() and not is_plain(parameter, sys.modules["torch"])


def have_finite_norms(tensors: Sequence[Tensor]) -> list[bool]:
    """Of which tensors the norm is finite, which is waited for.

    While a graph is captured nothing can be read: then none is said to be otherwise.
    """
    if is_capturing():
        return [True] * len(tensors)
    torch: Any = sys.modules["torch"]
    return [bool(torch.isfinite(norm)) for norm in norms_of(tensors)]


def bad_weights(
    recording: Recording, roots: list[Module], *, reads_devices: bool = True
) -> dict[int, tuple[Watched, Bad]]:
    """The parameters that are not finite, by identity, each with its module.

    Args:
        reads_devices: Whether those on devices are looked at, too, which waits for these.
    """
    torch: Any = sys.modules["torch"]
    owners = owners_of(recording, roots)
    weights = [
        weight
        for weight in _weights_of(roots, torch)
        if id(weight) in owners and (reads_devices or weight.device.type == "cpu")
    ]
    found: dict[int, tuple[Watched, Bad]] = {}
    for weight, is_finite in zip(weights, have_finite_norms(weights), strict=True):
        if not is_finite:
            watched, name = owners[id(weight)]
            bad = look_at(name, weight)
            if bad is not None:
                found[id(weight)] = watched, bad
    return found


def bad_buffers(recording: Recording, roots: list[Module]) -> dict[int, tuple[Watched, Bad]]:
    """The buffers that hold NaN, as `bad_weights`: a running statistic keeps it for ever.

    Infinity alone is left out: many a mask holds it.
    """
    torch: Any = sys.modules["torch"]
    found: dict[int, tuple[Watched, Bad]] = {}
    for root in roots:
        text = recording.objects.models.root_text(root)
        for path, module in root.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is None or not buffer.is_floating_point() or not is_plain(buffer, torch):
                    continue
                bad = look_at(name, buffer)
                if bad is not None and bad.nan_count:
                    found.setdefault(id(buffer), (Watched(module, path, root, text), bad))
    return found


def owners_of(recording: Recording, roots: list[Module]) -> dict[int, tuple[Watched, str]]:
    """By identity of a parameter, the module that it belongs to, and its name there."""
    owners: dict[int, tuple[Watched, str]] = {}
    for root in roots:
        text = recording.objects.models.root_text(root)
        for path, module in root.named_modules():
            watched = Watched(module, path, root, text)
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    owners.setdefault(id(parameter), (watched, name))
    return owners
