"""The class that a module was made as, the module inside its wrappers, and what is inside it.

Rules of this file: asks modules for their children and classes, and runs nothing of theirs: a
model may have something of its own by the name of `parameters` or `modules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...torch_types import Module

_WRAPPER_CHILDREN = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_PARALLEL_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel"})

_SHARDED = "FSDPModule"


def class_name(module: Module) -> str:
    """The class that a module was made as; FSDP2 puts one of its own over it."""
    cls = type(module)
    bases = cls.__bases__
    is_sharded = len(bases) > 1 and bases[0].__name__ == _SHARDED
    return bases[1].__name__ if is_sharded else cls.__name__


def is_wrapper_child(module: Module, name: str) -> bool:
    """Whether a child is the module that its parent merely wraps."""
    return name in _WRAPPER_CHILDREN or (
        name == "module" and type(module).__name__ in _PARALLEL_WRAPPERS
    )


def unwrap(module: Any) -> Any:
    """The module inside any number of wrappers."""
    inner = module
    while True:
        # A module that torch.jit has compiled keeps no dictionary, but something that has items.
        children = [m for name, m in inner._modules.items() if is_wrapper_child(inner, name)]
        if not children or children[0] is None:
            return inner
        inner = children[0]


def modules_in(root: Any) -> Iterator[Any]:
    """Every module below and including one, each once, in torch's order."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        module = waiting.pop()
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            yield module
            waiting.extend(reversed(list(module._modules.values())))


def parameters_in(root: Any) -> Iterator[Any]:
    """The parameters of a module and of all below it, each once, in torch's order."""
    seen: set[int] = set()
    for _, _, parameter in places_in(root):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield parameter


def places_in(root: Any) -> Iterator[tuple[Any, str, Any]]:
    """The same, each behind its module and its name there; a shared one several times.

    They are looked for as far as they are asked for.
    """
    for module in modules_in(root):
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                yield module, name, parameter
