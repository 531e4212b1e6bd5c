"""How many floating-point operations a call of a known layer takes, by its shapes.

Rules of this file: pure functions of a module's attributes and of shapes; touches no tensor. A
multiplication and an addition count as two operations, and bias additions as none, as in
`torch.utils.flop_counter`, with whose counts the tests compare. A formula belongs to a ``forward``
method, not to a class: a class that computes something else in a forward of its own has none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..torch_types import Module

Shape = tuple[int, ...]


class Shapes(NamedTuple):
    """The tensors of one call.

    Attributes:
        inputs: By position (``0``, ``1``) or by the name they were given by.
        outputs: In the order in which they were returned.
    """

    inputs: dict[str, Shape]
    outputs: tuple[Shape, ...]

    def given(self, place: int, name: str) -> Shape:
        """The shape of one input; the first of several tensors given in its place.

        Raises:
            KeyError: It was not given, or is no tensor.
        """
        for key in (str(place), name, f"{place}.data", f"{name}.data"):
            if key in self.inputs:
                return self.inputs[key]
        raise KeyError(name)


Formula = Callable[[Any, Shapes], int]


class Formulas:
    """The formulas for the layers of the torch that is loaded."""

    def __init__(self) -> None:
        nn: Any = sys.modules["torch"].nn
        self._known: dict[Any, Formula] = {}
        for names, formula in _LAYERS.items():
            for name in names.split():
                layer = getattr(nn, name, None)  # an older torch may lack it
                if layer is not None:
                    self._known[layer.forward] = formula
        container: Any = sys.modules["torch.nn.modules.module"]
        self._no_forward = container._forward_unimplemented
        self._chain = nn.Sequential.forward

    def count(self, module: Module, shapes: Shapes) -> int | None:
        """The operations of one call; None where no formula is known."""
        if "forward" in vars(module):
            return None  # something was put in its place
        formula = self._known.get(_forward_of(module))
        if formula is None:
            return None
        try:
            return formula(module, shapes)
        except (KeyError, IndexError, ZeroDivisionError):
            return None  # called in a way that the formula knows nothing of

    def is_known(self, module: Module) -> bool:
        """Whether a formula is known for its forward."""
        return "forward" not in vars(module) and _forward_of(module) in self._known

    def is_container(self, module: Module) -> bool:
        """Whether it only holds modules and cannot be called, as a ModuleList."""
        return _forward_of(module) is self._no_forward

    def is_chain(self, module: Module) -> bool:
        """Whether its forward does nothing but to call the modules inside it."""
        return _forward_of(module) is self._chain and "forward" not in vars(module)


def _forward_of(module: Module) -> Any:
    """The forward of a module's class; None where it has none that can be asked for.

    That of a module which torch.jit has compiled raises an error when it is.
    """
    return getattr(type(module), "forward", None)


def linear(module: Any, shapes: Shapes) -> int:
    """2 x in x out per position: one multiplication and addition per weight.

    Source: Kaplan et al., "Scaling Laws for Neural Language Models" (arXiv:2001.08361), table 1.
    """
    positions = math.prod(shapes.given(0, "input")[:-1])
    return int(2 * positions * module.in_features * module.out_features)


def convolution(module: Any, shapes: Shapes) -> int:
    """2 x kernel x in/groups x out per output position; transposed, per input position.

    Source: Molchanov et al., "Pruning Convolutional Neural Networks for Resource Efficient
    Inference" (arXiv:1611.06440), appendix A.1; `conv_flop_count` of torch.utils.flop_counter.
    """
    axes = len(module.kernel_size)
    per_place = module.in_channels * module.out_channels // module.groups
    per_place *= math.prod(module.kernel_size)
    shape = shapes.given(0, "input") if module.transposed else shapes.outputs[0]
    batch = math.prod(shape[: -axes - 1])
    return int(2 * batch * math.prod(shape[-axes:]) * per_place)


def nothing(_module: Module, _shapes: Shapes) -> int:
    """0: an embedding copies rows, and these others at most look at shapes."""
    return 0


def dropout(module: Module, _shapes: Shapes) -> int:
    """0 where nothing is dropped.

    Raises:
        KeyError: It is dropping: no formula is agreed upon for that.
    """
    if module.training and module.p:
        raise KeyError("p")
    return 0


def batch_norm(module: Module, shapes: Shapes) -> int:
    """4 per element in training, 1 in evaluation, and one more with weights.

    Source: `batchnorm_flop_counter` and `norm_flop_counter` of fvcore (fvcore/nn/jit_handles.py).
    """
    elements = math.prod(shapes.given(0, "input"))
    if module.training or module.running_mean is None:
        return elements * (5 if module.affine else 4)
    return elements * (2 if module.affine else 1)


def norm(module: Module, shapes: Shapes) -> int:
    """4 per element, 5 with weights: mean, variance, subtraction and division.

    Source: `norm_flop_counter` of fvcore (fvcore/nn/jit_handles.py).
    """
    return math.prod(shapes.given(0, "input")) * (5 if _has_weight(module) else 4)


def rms_norm(module: Module, shapes: Shapes) -> int:
    """3 per element, 4 with weights: square, sum and division, without a mean.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (arXiv:1910.07467), eq. 4,
    counted as in `norm`.
    """
    return math.prod(shapes.given(0, "input")) * (4 if _has_weight(module) else 3)


def attention(module: Any, shapes: Shapes) -> int:
    """The four projections, and two products of length x source length x width.

    Source: Vaswani et al., "Attention Is All You Need" (arXiv:1706.03762), sections 3.2 and 4;
    `sdpa_flop_count` of torch.utils.flop_counter. A mask saves nothing in it.
    """
    query, key, value = (
        shapes.given(place, name) for place, name in enumerate(("query", "key", "value"))
    )
    width = module.embed_dim
    targets, sources = math.prod(query[:-1]), math.prod(key[:-1])
    # Unbatched, length comes first; batched, its place depends on the layer.
    at = 1 if module.batch_first and len(key) == 3 else 0
    reach = key[at] + int(module.bias_k is not None) + int(module.add_zero_attn)
    projected = 2 * targets * width * width + sources * width * (key[-1] + value[-1])
    return int(2 * projected + 4 * targets * reach * width)


def recurrent(module: Any, shapes: Shapes) -> int:
    """2 x (input + recurrent weights) per step, layer and direction.

    Source: the equations in the documentation of torch.nn.LSTM, GRU and RNN: their matrix
    products; the gates' element-wise work is not counted. As in DeepSpeed's flops profiler.
    """
    given = shapes.given(0, "input")
    steps = math.prod(given) // module.input_size
    hidden = module.hidden_size
    gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1) * hidden
    width = module.proj_size or hidden
    directions = 2 if module.bidirectional else 1
    total, size = 0, module.input_size
    for _ in range(module.num_layers):
        weights = gates * (size + width) + (hidden * width if module.proj_size else 0)
        total += 2 * steps * directions * weights
        size = width * directions
    return int(total)


def recurrent_cell(module: Any, shapes: Shapes) -> int:
    """2 x (input + recurrent weights): one step of `recurrent`."""
    batch = math.prod(shapes.given(0, "input")[:-1])
    gates = module.weight_hh.shape[0]
    return int(2 * batch * gates * (module.input_size + module.hidden_size))


def _has_weight(module: Module) -> bool:
    """Whether a normalisation scales its result."""
    return getattr(module, "weight", None) is not None


_LAYERS: dict[str, Formula] = {
    "Linear": linear,
    "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d": convolution,
    "Embedding Identity Flatten Unflatten": nothing,
    "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout": dropout,
    "BatchNorm1d SyncBatchNorm": batch_norm,
    "InstanceNorm1d LayerNorm GroupNorm": norm,
    "RMSNorm": rms_norm,
    "MultiheadAttention": attention,
    "LSTM GRU RNN": recurrent,
    "LSTMCell GRUCell RNNCell": recurrent_cell,
}
"""By the names of layers; those that share a forward, as BatchNorm2d, need not be named."""
