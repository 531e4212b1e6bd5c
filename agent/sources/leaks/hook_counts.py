"""How many hooks hang on the modules of the models.

Rules of this file: runs in the training thread; calls no hook and holds none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ..calls.names.module_names import outermost, walk
from ..torch_types import Module
from .references.holders import Holder

_OURS = __name__.partition(".")[0] + "."
_ON_MODULES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_ON_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def hooks_of(roots: list[Module]) -> tuple[int, int, Holder | None]:
    """The numbers of modules and of the program's hooks, and that which was registered last."""
    modules = hooks = 0
    newest: tuple[int, Any, str] = (-1, None, "")
    for root in outermost(roots):
        for path, module in walk(root, "", set()):
            modules += 1
            for name, found in hooks_on(module):
                own = [item for item in list(found.items()) if not is_ours(item[1])]
                hooks += len(own)
                for number, hook in own[-1:]:
                    if type(number) is int and number > newest[0]:
                        newest = (number, hook, f"{path or type(module).__name__}.{name}")
    return modules, hooks, _described(newest[1], newest[2])


def hooks_on(module: Module) -> Iterator[tuple[str, dict[Any, Any]]]:
    """The collections of hooks on a module and on its own parameters."""
    for name in _ON_MODULES:
        found = getattr(module, name, None)
        if found:
            yield name.strip("_"), found
    for name, parameter in list(module._parameters.items()):
        for kind in _ON_TENSORS if parameter is not None else ():
            found = getattr(parameter, kind, None)
            if found:
                yield f"{name}'s hooks", found


def is_ours(hook: object) -> bool:
    """Whether a hook is there only while somebody looks."""
    return str(getattr(function_of(hook), "__module__", "")).startswith(_OURS)


def function_of(hook: object) -> object:
    """The function behind a bound method or a partial; else the hook itself."""
    function: Any = hook
    while type(function) is functools.partial:
        function = function.func
    return getattr(function, "__func__", function)


def _described(hook: object, place: str) -> Holder | None:
    """Where the function of a hook stands in the source."""
    if hook is None:
        return None
    function = function_of(hook)
    code = getattr(function, "__code__", None)
    return Holder(
        kind="attribute",
        path=place,
        place=getattr(function, "__qualname__", type(hook).__qualname__),
        file=getattr(code, "co_filename", None),
        line_of=getattr(code, "co_firstlineno", None),
    )
