"""What the activations of a transformer should take by a formula, from the shapes that it shows.

Rules of this file: pure functions of rows of python.modules. The formula is that of the usual
estimate for training in two-byte numbers without sharing or recomputation: so many bytes per layer
are ``B * T * (9 C + 3 D) * 2``, with the batch B, the length T, the width C and the width D inside
the layer's perceptron. It is a yardstick, not a measurement.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...messages.frozen import dataclass

FORMULA = "B*T*(9C+3D)*2"
_FEWEST = 2
_SHAPE = re.compile(r"\[([\d, ]*)\]")
_NUMBERED = re.compile(r"(?:(.*)\.)?(\d+)")
_SEQUENCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """The sizes of a transformer.

    Attributes:
        layers: The names of its layers.
        batch: B, the samples of one call.
        length: T, the positions of each.
        width: C, the numbers of each position between layers.
        inner: D, the numbers of each position inside a layer's perceptron.
    """

    layers: tuple[str, ...]
    batch: int
    length: int
    width: int
    inner: int

    @property
    def layer_bytes(self) -> int:
        """What one layer should take."""
        return self.batch * self.length * (9 * self.width + 3 * self.inner) * 2

    @property
    def all_bytes(self) -> int:
        """What all layers should take."""
        return self.layer_bytes * len(self.layers)


def transformer_in(modules: Sequence[Mapping[str, Any]]) -> Transformer | None:
    """The transformer that rows of python.modules show; None where they show none.

    Its layers are the longest list of modules of one class that each turn a tensor of three
    dimensions into one of the same size.
    """
    shapes = {row["module"]: _shapes(row) for row in modules}
    lists: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for row in modules:
        found = _NUMBERED.fullmatch(row["module"] or "")
        given, returned = shapes[row["module"]]
        if found and given and len(given) == _SEQUENCE and given == returned:
            lists[row["model_id"], found[1], row["class"], given].append(row["module"])
    if not lists:
        return None
    (_, _, _, (batch, length, width)), layers = max(lists.items(), key=lambda item: len(item[1]))
    inner = _inner(shapes, layers[0], width)
    if inner is None or len(layers) < _FEWEST:
        return None
    return Transformer(layers=tuple(layers), batch=batch, length=length, width=width, inner=inner)


def bytes_of_layers(
    transformer: Transformer, activations: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """What was measured of each layer, by rows of python.activations."""
    sums = dict.fromkeys(transformer.layers, 0)
    for row in activations:
        for layer in transformer.layers:
            if row["module"] == layer or (row["module"] or "").startswith(f"{layer}."):
                sums[layer] += row["bytes"]
    return sums


def _inner(shapes: Mapping[str, Any], layer: str, width: int) -> int | None:
    """The widest input of a module in a layer that returns the layer's own width."""
    inside = [pair for name, pair in shapes.items() if name.startswith(f"{layer}.")]
    last = [(given[-1], got[-1]) for given, got in inside if given and got]
    return max((given for given, got in last if got == width and given != width), default=None)


def _shapes(row: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    return _first(row["input_shapes"]), _first(row["output_shapes"])


def _first(text: str | None) -> tuple[int, ...] | None:
    found = _SHAPE.search(text or "")
    if found is None or not found[1].strip():
        return None
    return tuple(int(size) for size in found[1].split(","))
