"""How much arithmetic a training step of a language model takes, and what the device could do.

Rules of this file: runs in the training thread; looks at sizes only.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, NamedTuple

from ..accelerator import DeviceModel, device_kind
from ..calls.names.class_names import modules_in, parameters_in
from ..torch_types import Module, Tensor

_PER_PARAMETER = 6
_T = 1e12


class _Peaks(NamedTuple):
    """Dense matrix arithmetic per second.

    Attributes:
        half: In 16 bits.
        single: In 32 bits; None where it is not known.
        processors: How many multiprocessors do that, where a part of the device may be on its own.
        has_tensor_float: Whether it multiplies 32 bits as TF32, at half the speed of 16 bits.
    """

    half: float
    single: float | None
    processors: int | None = None
    has_tensor_float: bool = True


_PEAKS: tuple[tuple[str, _Peaks], ...] = (
    ("B200", _Peaks(2250 * _T, None)),
    ("H200", _Peaks(989 * _T, 67 * _T, 132)),
    ("H100 PCIe", _Peaks(756 * _T, 51 * _T, 114)),
    ("H100 NVL", _Peaks(835 * _T, 60 * _T, 132)),
    ("H100", _Peaks(989 * _T, 67 * _T, 132)),
    ("A100", _Peaks(312 * _T, 19.5 * _T, 108)),
    ("A40", _Peaks(150 * _T, 37.4 * _T)),
    ("A30", _Peaks(165 * _T, 10.3 * _T, 56)),
    ("A10", _Peaks(125 * _T, 31.2 * _T)),
    ("L40S", _Peaks(362 * _T, 91.6 * _T)),
    ("L40", _Peaks(181 * _T, 90.5 * _T)),
    ("L4", _Peaks(121 * _T, 30.3 * _T)),
    ("V100", _Peaks(125 * _T, 15.7 * _T, has_tensor_float=False)),
    ("T4", _Peaks(65 * _T, 8.1 * _T, has_tensor_float=False)),
)
"""By a part of the device's name; the first that is found counts. From NVIDIA's data sheets of
these products, without sparsity."""


class Precision(NamedTuple):
    """In what a model is multiplied.

    Attributes:
        bits: The width of its numbers.
        is_bfloat: Whether they are bfloat16, which older devices do not multiply in hardware.
        is_tensor_float: Whether 32 bits may be multiplied as TF32.
    """

    bits: int
    is_bfloat: bool = False
    is_tensor_float: bool = False


def peak_of(device: DeviceModel | None, precision: Precision | None) -> float | None:
    """Floating-point operations per second that a device reaches at best; None where unknown."""
    if device is None or precision is None:
        return None
    words = f" {device.name.replace('-', ' ')} "
    found = next((peaks for name, peaks in _PEAKS if f" {name} " in words), None)
    if found is None:
        return None
    whole = _at(found, precision)
    if whole is None or " MIG " not in words:
        return whole
    if not found.processors or not device.processors:
        return None
    return whole * device.processors / found.processors


def _at(peaks: _Peaks, precision: Precision) -> float | None:
    """The peak of a whole device in one precision."""
    if precision.bits == 16:
        return None if precision.is_bfloat and not peaks.has_tensor_float else peaks.half
    if precision.bits != 32:
        return None
    if precision.is_tensor_float and peaks.has_tensor_float:
        return peaks.half / 2
    return peaks.single


def precision_of(model: Module, autocast: Any) -> Precision | None:
    """In what a model is multiplied; None where that cannot be told.

    Args:
        autocast: The type that autocast has its calls be in; None without.
    """
    torch: Any = sys.modules["torch"]
    dtype = autocast or next(
        (p.dtype for p in parameters_in(model) if _has_shape(p) and p.dim() > 1), None
    )
    if dtype is None or not dtype.is_floating_point:
        return None
    try:
        may_shorten = torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # set by the newer functions, which say it otherwise
        return None if dtype is torch.float32 else Precision(dtype.itemsize * 8)
    return Precision(dtype.itemsize * 8, dtype is torch.bfloat16, may_shorten)


def autocast_type() -> Any:
    """The type that autocast has calls on a device be in, here and now; None without."""
    torch: Any = sys.modules["torch"]
    try:
        kind = device_kind()
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    except (AttributeError, TypeError):  # a torch before 2.4
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


class ModelFlops:
    """Estimates the arithmetic of a step from the model's size.

    A token takes 6 operations per parameter: 2 in the forward pass, 4 in the backward pass (Kaplan
    et al., "Scaling Laws for Neural Language Models", arXiv:2001.08361, section 2.1). As there,
    embeddings are not counted, nor is what attention adds for long sequences.
    """

    def __init__(self) -> None:
        self._model: weakref.ref[Any] | None = None
        self._parameters = 0
        self._precision: Precision | None = None
        self._autocast: Any = False  # that which the precision goes by; False before there is one
        self._peak: tuple[DeviceModel | None, Precision | None, float | None] = (None, None, None)

    def peak_of(self, device: DeviceModel | None) -> float | None:
        """What a device does at best in what the model is multiplied in."""
        if self._peak[:2] != (device, self._precision):
            self._peak = device, self._precision, peak_of(device, self._precision)
        return self._peak[2]

    def of_step(self, model: Any, tokens: int, autocast: Any = None) -> float | None:
        """Operations of a step in which a model has trained on so many tokens.

        Args:
            autocast: The type that autocast has its calls be in; None without.
        """
        if model is None:
            return None
        if self._model is None or self._model() is not model:
            self._model = weakref.ref(model)
            self._parameters, self._autocast = _count(model), False
        if autocast != self._autocast:
            self._autocast, self._precision = autocast, precision_of(model, autocast)
        return float(_PER_PARAMETER * self._parameters * tokens) if self._parameters else None


def _count(model: Module) -> int:
    """The parameters of a model but for those of its embeddings, shared ones once.

    One that an embedding shares with another module counts, since it is multiplied there.
    """
    embedding = sys.modules["torch"].nn.Embedding
    counted: dict[int, int] = {}
    for module in modules_in(model):
        if not isinstance(module, embedding):
            for parameter in module._parameters.values():
                if parameter is not None and _has_shape(parameter):
                    counted[id(parameter)] = parameter.numel()
    return sum(counted.values())


def _has_shape(parameter: Tensor) -> bool:
    """Whether it is known: not of a lazy module that was never called."""
    return not sys.modules["torch"].nn.parameter.is_lazy(parameter)
