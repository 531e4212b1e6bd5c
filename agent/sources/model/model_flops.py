"""How much arithmetic a training step of a language model takes, and what the device could do.

Rules of this file: runs in the training thread; looks at sizes only.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

_PER_PARAMETER = 6
_PEAKS: tuple[tuple[str, float], ...] = (
    ("B200", 2250e12),
    ("H200", 989e12),
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("A40", 150e12),
    ("A30", 165e12),
    ("A10", 125e12),
    ("L40S", 362e12),
    ("L40", 181e12),
    ("L4", 121e12),
    ("V100", 125e12),
    ("T4", 65e12),
)
"""Dense matrix arithmetic per second in 16 bits, by a part of the device's name; the first that is
found counts. From NVIDIA's data sheets of these products."""


def peak_of(device: str | None) -> float | None:
    """Floating-point operations per second that a device reaches at best; None where unknown."""
    if device is None:
        return None
    words = device.replace("-", " ")
    return next((peak for name, peak in _PEAKS if f" {name} " in f" {words} "), None)


class ModelFlops:
    """Estimates the arithmetic of a step from the model's size.

    A token takes 6 operations per parameter: 2 in the forward pass, 4 in the backward pass (Kaplan
    et al., "Scaling Laws for Neural Language Models", arXiv:2001.08361, section 2.1). As there,
    embeddings are not counted, nor is what attention adds for long sequences.
    """

    def __init__(self) -> None:
        self._model: weakref.ref[Any] | None = None
        self._parameters = 0

    def of_step(self, model: Any, tokens: int) -> float | None:
        """Operations of a step in which a model has trained on so many tokens."""
        if model is None:
            return None
        if self._model is None or self._model() is not model:
            self._model = weakref.ref(model)
            self._parameters = _count(model)
        return float(_PER_PARAMETER * self._parameters * tokens) if self._parameters else None


def _count(model: Any) -> int:
    """The parameters of a model but for those of its embeddings, shared ones once.

    One that an embedding shares with another module counts, since it is multiplied there.
    """
    embedding = sys.modules["torch"].nn.Embedding
    counted: dict[int, int] = {}
    for module in model.modules():
        if not isinstance(module, embedding):
            for parameter in module._parameters.values():
                if parameter is not None:
                    counted[id(parameter)] = parameter.numel()
    return sum(counted.values())
