"""Functions of the standard library as they were made.

gevent and eventlet put others in their place, in the modules themselves, that run in a loop of the
thread which calls them. The agent has a thread of the kernel, so that it answers while the training
computes and is nobody's turn; for that it needs the functions that were there before.
"""

from __future__ import annotations

import _thread
import importlib
import sys
from types import BuiltinFunctionType
from typing import Any


def genuine(module: str, name: str) -> Any:
    """A function of a module as it was made, whatever stands in its place now."""
    saved = getattr(sys.modules.get("gevent.monkey"), "saved", {}).get(module, {})
    if name in saved:
        return saved[name]
    patcher = sys.modules.get("eventlet.patcher")
    if getattr(patcher, "already_patched", None):
        return getattr(patcher.original(module), name)  # type: ignore[union-attr]
    return getattr(importlib.import_module(module), name)


def has_own_threads() -> bool:
    """Whether a thread that is started is one of the kernel's."""
    return type(_thread.start_new_thread) is BuiltinFunctionType
