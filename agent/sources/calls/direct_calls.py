"""The model whose ``forward`` a script has called by its name, past the call that is recorded.

Rules of this file: runs in the training threads, once per module that is met for the first time
outside of any other. Reads the locals of frames of ``forward`` alone: a copy of them lives until
that call ends, and keeps nothing longer.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_NEAR = 12
_OURS = ("probing.", "torch.nn.modules.")


def owner_of(module: Any) -> Any:
    """The outermost module that is inside of its forward, and has another one; None for none."""
    module_class = sys.modules["torch"].nn.Module
    frame: FrameType | None = sys._getframe(1)
    owner = None
    for _ in range(_NEAR):
        if frame is None:
            break
        code = frame.f_code
        name = f"{frame.f_globals.get('__name__', '')}."
        if code.co_name == "forward" and code.co_argcount and not name.startswith(_OURS):
            found = frame.f_locals.get(code.co_varnames[0])
            if isinstance(found, module_class) and _has(found, module):
                owner = found
        frame = frame.f_back
    return owner


def _has(owner: Any, module: Any) -> bool:
    """Whether a module is below another one."""
    return owner is not module and any(part is module for part in owner.modules())
