"""Whether an interpreter still runs code.

Rules of this file: looks, and changes nothing.
"""

from __future__ import annotations

import contextlib

from .borrowing.memory import Interpreter
from .layouts import LAYOUTS
from .refusal import CannotInject
from .remote_exec import read_offsets


def require_running(interpreter: Interpreter) -> None:
    """Make sure that a process is not about to end: then threads get the interpreter lock no more.

    Raises:
        CannotInject: It is. Of a Python whose layout is not known that cannot be told.
    """
    finalizing = None
    if interpreter.version in LAYOUTS:
        finalizing = LAYOUTS[interpreter.version].finalizing
    else:
        with contextlib.suppress(CannotInject):
            finalizing = read_offsets(interpreter).finalizing
    runtime = interpreter.address("_PyRuntime")
    if finalizing is not None and interpreter.memory.u64(runtime + finalizing):
        raise CannotInject("its Python is shutting down")
