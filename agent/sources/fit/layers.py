"""Finds the list of identical blocks in a model, and changes their number in a copy of it.

Rules of this file: `find_layers` looks at a live model, at classes and shapes only;
`resize_layers` changes nothing but a `FakeCopy`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from ....errors import FitRefused
from ..model.blocks import Blocks, repeated_blocks
from ..torch_types import Module, Optimizer, Tensor
from .fake_copy import FakeCopy

_FIELDS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "layers")


class Layers(NamedTuple):
    """The list of identical blocks whose number can be changed.

    Attributes:
        path: Where it is in the model.
        block: The class of the blocks.
        number: How many there are.
        field: What in ``model.config`` gives their number, if anything does.
    """

    path: str
    block: str
    number: int
    field: str | None


def find_layers(model: Module) -> Layers | None:
    """The container of identical blocks alone that has most parameters."""
    found = [row for row in repeated_blocks(model) if _is_uniform(row)]
    if not found:
        return None
    row = max(found, key=lambda row: sum(p.numel() for p in row.container.parameters()))
    path = next(path for path, module in model.named_modules() if module is row.container)
    count = len(row.modules)
    return Layers(path, type(row.modules[0]).__name__, count, _field(model, count))


def resize_layers(
    model: Any,
    optimizers: list[Any],
    blocks: Layers,
    count: int,
    copies: FakeCopy,
    *,
    check: Callable[[], None],
) -> None:
    """Give a copy of the model another number of blocks, and its optimizers their parameters.

    `check` is called before each block that is made: as many are made as somebody asks for.
    """
    holder = model.get_submodule(blocks.path)
    there = list(holder._modules.values())
    for block in there[count:]:
        for parameter in block.parameters():
            for optimizer in optimizers:
                _drop(optimizer, parameter)
    for _ in range(count - len(there)):
        check()
        fresh = copies.again(there[0])
        pairs = zip(there[0].parameters(), fresh.parameters(), strict=True)
        for pattern, parameter in pairs:
            for optimizer in optimizers:
                _add(optimizer, pattern, parameter, copies)
        there.append(fresh)
    holder._modules = OrderedDict((str(i), block) for i, block in enumerate(there[:count]))
    if blocks.field is not None and copies.is_copied(model.config):
        setattr(model.config, blocks.field.rpartition(".")[2], count)


def check_layers(model: Module, blocks: Layers | None) -> Layers:
    """The blocks whose number is to change.

    Raises:
        FitRefused: There are none.
    """
    if blocks is None:
        name = type(model).__name__
        raise FitRefused(
            f"{name} has no ModuleList or Sequential of identical blocks",
            help="--batch and --seq work without.",
        )
    return blocks


def _is_uniform(row: Blocks) -> bool:
    """Whether blocks have parameters of the same names and shapes, and are all that is there."""
    shapes = [[(name, p.shape) for name, p in block.named_parameters()] for block in row.modules]
    is_alone = len(row.modules) == len(row.container._modules)
    return is_alone and all(each == shapes[0] for each in shapes)


def _field(model: Module, count: int) -> str | None:
    """The field of the model's configuration that gives a number of blocks."""
    config = getattr(model, "config", None)
    found = vars(config) if hasattr(config, "__dict__") else {}
    name = next((name for name in _FIELDS if found.get(name) == count), None)
    return f"model.config.{name}" if name else None


def _drop(optimizer: Optimizer, parameter: Tensor) -> None:
    optimizer.state.pop(parameter, None)
    for group in optimizer.param_groups:
        group["params"] = [p for p in group["params"] if p is not parameter]


def _add(optimizer: Any, pattern: Any, parameter: Tensor, copies: FakeCopy) -> None:
    """A parameter is there that is optimized as another is."""
    for group in optimizer.param_groups:
        if any(p is pattern for p in group["params"]):
            group["params"] = [*group["params"], parameter]
    if pattern in optimizer.state:
        optimizer.state[parameter] = {
            key: copies.like(value) for key, value in optimizer.state[pattern].items()
        }
