"""Finds the list of identical blocks in a model, and changes their number in a copy of it.

Rules of this file: `find_blocks` looks at a live model, at classes and shapes only;
`resize_blocks` changes nothing but a `FakeCopy`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from ....errors import FitRefused
from ..torch_types import Module, Optimizer, Tensor
from .fake_copy import FakeCopy

_FIELDS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "layers")


class Blocks(NamedTuple):
    """A list of identical blocks.

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


def find_blocks(model: Module, torch: ModuleType) -> Blocks | None:
    """The list of identical blocks with the most parameters."""
    best, most = None, 0
    for path, module in model.named_modules():
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        blocks = list(module._modules.values())
        if len(blocks) < 2 or any(_form(b) != _form(blocks[0]) for b in blocks[1:]):
            continue
        size = sum(p.numel() for p in module.parameters())
        if size > most:
            name = type(blocks[0]).__name__
            best, most = Blocks(path, name, len(blocks), _field(model, len(blocks))), size
    return best


def resize_blocks(
    model: Any,
    optimizers: list[Any],
    blocks: Blocks,
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


def check_layers(model: Module, blocks: Blocks | None) -> Blocks:
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


def _form(block: Any) -> Any:
    """What makes blocks identical: class, and names and shapes of parameters."""
    if block is None:
        return None
    shapes = tuple((name, tuple(p.shape)) for name, p in block.named_parameters())
    return (type(block), shapes) if shapes else object()


def _field(model: Module, count: int) -> str | None:
    """The field of the model's configuration that gives a number of blocks."""
    config = getattr(model, "config", None)
    found = vars(config) if hasattr(config, "__dict__") else {}
    name = next((name for name in _FIELDS if found.get(name) == count), None)
    return f"model.config.{name}" if name else None


def _drop(optimizer: Optimizer, parameter: Tensor) -> None:
    """A parameter is no longer there."""
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
