"""Models and optimizers of a process in which nothing has been called since the agent came.

Rules of this file: runs in the agent's thread; asks the garbage collector what it knows, compares
classes, and runs no code of any object. Only what hangs or has just been attached to needs this.
"""

from __future__ import annotations

import sys
from typing import Any

from ..calls.names.class_names import parameters_in
from ..calls.names.module_names import outermost
from ..storage.living import objects_of


def found_roots() -> list[Any]:
    """The modules with parameters that no other module holds."""
    return [
        module
        for module in outermost(_instances(sys.modules["torch"].nn.Module))
        if next(parameters_in(module), None) is not None
    ]


def found_optimizers() -> list[Any]:
    """Every optimizer there is."""
    optimizers = _instances(sys.modules["torch"].optim.Optimizer)
    return [optimizer for optimizer in optimizers if "param_groups" in vars(optimizer)]


def _instances(cls: type) -> list[Any]:
    """The objects of a class, without any that is still being made."""
    return [thing for thing in objects_of((cls,)) if vars(thing)]
