"""Finds the repeated blocks of a model, by how the model is built.

Rules of this file: looks at the tree of modules only; calls nothing and changes nothing.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from ..calls.names.class_names import modules_in, parameters_in
from ..calls.names.module_names import walk
from ..torch_types import Module

_FEWEST = 2


class Blocks(NamedTuple):
    """Modules of one class, one behind the other in a container.

    Attributes:
        name: The container's name in the model.
        names: Theirs.
        modules: They, in the order in which the container has them.
        container: The module that has them, and may have others beside.
    """

    name: str
    names: tuple[str, ...]
    modules: tuple[Any, ...]
    container: Any


def repeated_blocks(model: Module) -> list[Blocks]:
    """Every row of repeated blocks that stands in no other one."""
    torch: Any = sys.modules["torch"]
    containers = (torch.nn.ModuleList, torch.nn.Sequential)
    found: list[Blocks] = []
    inside: set[int] = set()
    for path, module in walk(model, "", set()):
        if not isinstance(module, containers) or id(module) in inside:
            continue
        row = _longest_row(module)
        if len(row) < _FEWEST:
            continue
        names = tuple([f"{path}.{key}" if path else key for key, _ in row])
        blocks = tuple([block for _, block in row])
        inside.update(id(part) for part in modules_in(module))
        found.append(Blocks(path or type(module).__name__, names, blocks, module))
    return found


def _longest_row(container: Any) -> list[tuple[str, Any]]:
    """The longest row of neighbours of one class that have parameters."""
    best: list[tuple[str, Any]] = []
    row: list[tuple[str, Any]] = []
    for key, child in container._modules.items():
        if child is None or next(parameters_in(child), None) is None:
            row = []
            continue
        row = [*row, (key, child)] if row and type(row[-1][1]) is type(child) else [(key, child)]
        best = max(best, row, key=len)
    return best
