"""The model that a module belongs to which a script has called past that model's own call.

Rules of this file: runs in the training threads, once per module that is met for the first time
outside of any other. Reads the variables of frames of methods, and leaves nothing behind in them.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from ...model.variables import holder_of, own_names
from ...torch_types import Module
from .class_names import modules_in

_NEAR = 12
_OURS = ("probing.", "torch.")


def owner_of(module: Module) -> Any:
    """The module that has another one, where that is called by what has it; None for none.

    That is the outermost which is inside of a method of its, such as ``forward``, called by its
    name, ``training_step`` or ``generate``; else one in a variable that cannot be called itself,
    such as a ``ModuleList`` whose layers the script calls.
    """
    module_class = sys.modules["torch"].nn.Module
    frame: FrameType | None = sys._getframe(1)
    owner = None
    for _ in range(_NEAR):
        if frame is None:
            break
        code = frame.f_code
        name = f"{frame.f_globals.get('__name__', '')}."
        if code.co_argcount and code.co_varnames[0] == "self" and not name.startswith(_OURS):
            found = own_names(frame).get("self")
            if isinstance(found, module_class) and _has(found, module):
                owner = found
        frame = frame.f_back
    if owner is not None:
        return owner
    uncalled = module_class.forward
    return holder_of(
        lambda value: (
            issubclass(type(value), module_class)
            # The class of what torch.jit has compiled raises an error when it is asked for it.
            and getattr(type(value), "forward", None) is uncalled
            and "forward" not in vars(value)
            and _has(value, module)
        )
    )


def _has(owner: Any, module: Module) -> bool:
    return owner is not module and any(part is module for part in modules_in(owner))
