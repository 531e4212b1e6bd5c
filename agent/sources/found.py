"""Models and optimizers of a process in which nothing has been called since the agent came.

Rules of this file: runs in the agent's thread; asks the garbage collector what it knows, compares
classes, and runs no code of any object. Only what hangs or has just been attached to needs this.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from .module_names import outermost

_MRO: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def found_roots() -> list[Any]:
    """The modules with parameters that no other module holds."""
    return [
        module
        for module in outermost(_instances(sys.modules["torch"].nn.Module))
        if next(module.parameters(), None) is not None
    ]


def found_optimizers() -> list[Any]:
    """Every optimizer there is."""
    optimizers = _instances(sys.modules["torch"].optim.Optimizer)
    return [optimizer for optimizer in optimizers if "param_groups" in vars(optimizer)]


def _instances(cls: type) -> list[Any]:
    """The objects of a class, the oldest first, without any that is still being made."""
    own = [thing for thing in gc.get_objects() if cls in _MRO(type(thing))]
    return [thing for thing in own if vars(thing)]
