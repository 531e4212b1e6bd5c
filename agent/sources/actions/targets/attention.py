"""Finds the attention in a model, by how the model is built.

Rules of this file: looks at the tree of modules only; calls nothing and changes nothing. A module
of its own kind beats a name: names are looked at only where no class says what it is.
"""

from __future__ import annotations

import re
from typing import Any

from ...calls.names.module_names import walk
from ...model.blocks import repeated_blocks
from ...torch_types import Module

_ATTENTION_CLASS = re.compile(r"attention|attn|MHA", re.IGNORECASE)
_ATTENTION_NAMES = frozenset({"attn", "attention", "self_attn", "self_attention", "mha"})


def attention_modules(model: Module) -> list[tuple[str, Any]]:
    """Every attention with its name, in the order of the model, those inside another one left out.

    A module that holds a row of blocks, or is one of them, is none, whatever it is called.
    """
    around = _blocks_and_around(model)
    named = [(path, m) for path, m in walk(model, "", set()) if path and id(m) not in around]
    found = [(path, m) for path, m in named if _ATTENTION_CLASS.search(type(m).__name__)]
    if not found:
        found = [
            (path, m)
            for path, m in named
            if path.rpartition(".")[2] in _ATTENTION_NAMES and not _is_torchs(m)
        ]
    inside = {id(part) for _, m in found for part in m.modules() if part is not m}
    return [(path, m) for path, m in found if id(m) not in inside]


def only_inside(model: Module, modules: list[Module]) -> list[Any]:
    """The parameters that a model has in some of its modules and nowhere else."""
    left_out = {id(module) for module in modules}
    elsewhere: set[int] = set()
    waiting, seen = [model], set(left_out)
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        elsewhere.update(id(p) for p in module._parameters.values() if p is not None)
        waiting += [child for child in module._modules.values() if child is not None]
    held = {id(p): p for module in modules for p in module.parameters()}
    return [p for key, p in held.items() if key not in elsewhere]


def _blocks_and_around(model: Module) -> set[int]:
    """The identities of repeated blocks, and of what they stand in."""
    blocks = {id(block) for row in repeated_blocks(model) for block in row.modules}
    around = {
        id(module) for module in model.modules() if any(id(p) in blocks for p in module.modules())
    }
    return blocks | around


def _is_torchs(module: Module) -> bool:
    """Whether a module is of a class of torch's own."""
    return type(module).__module__.startswith("torch.nn.modules.")
