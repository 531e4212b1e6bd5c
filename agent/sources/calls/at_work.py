"""Tells whether torch is in the middle of what no safe point may fall into.

Rules of this file: asked only while somebody waits for a safe point. Reads frames, never their
locals, and lets go of them at once; changes nothing. A pass that was begun before the agent came is
seen as well as any other, and so is one that is not on record.
"""

from __future__ import annotations

import inspect
import sys
import threading
from types import CodeType, FrameType, ModuleType
from typing import Any

from ....safety.other_stacks import current_stacks
from ....safety.this_thread import thread_name
from ...recording.safe_points import AGENT_THREAD_PREFIX, SafePoints
from ..accelerator import is_capturing
from .backward.passes import BackwardPasses

_RESTS = frozenset({
    SafePoints._come.__code__,
    inspect.unwrap(SafePoints.others_held_up).__code__,
})  # fmt: skip
"""A thread in one of these functions does nothing until it is let go."""


class TorchAtWork:
    """See `safe_points.AtWork`."""

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        core = torch._C
        self._task_id = getattr(core, "_current_graph_task_id", lambda: -1)
        functorch = getattr(core, "_functorch", None)
        self._level = getattr(functorch, "maybe_current_level", lambda: None)
        self._codes = frozenset(_codes(torch))

    def is_here(self) -> bool:
        """In a backward pass, or where a graph is being captured."""
        return self._task_id() != -1 or is_capturing()

    def is_elsewhere(self) -> bool:
        """Whether another thread is inside a backward pass or an optimizer's step."""
        own = {
            t.ident for t in threading.enumerate() if thread_name(t).startswith(AGENT_THREAD_PREFIX)
        }
        own.add(threading.get_ident())
        stacks = current_stacks()
        try:
            return any(self._is_in(stack) for ident, stack in stacks.items() if ident not in own)
        finally:
            stacks.clear()  # this very frame is among them, and would hold itself and all others

    def is_transformed(self) -> bool:
        """By `torch.func`, such as `grad` and `vmap`."""
        return self._level() is not None

    def _is_in(self, stack: list[FrameType]) -> bool:
        """Whether a stack goes through one of them, and does not stand at a safe point in it."""
        for one in stack:
            if one.f_code in _RESTS:
                return False
            if one.f_code in self._codes:
                return True
        return False


def _codes(torch: ModuleType) -> list[CodeType]:
    """The code of what starts the autograd engine, and of what calls an optimizer's step.

    Who has entered our stand-in has perhaps been told already that the way is free.
    """
    graph: Any = sys.modules["torch.autograd.graph"]
    found = [
        inspect.unwrap(module._engine_run_backward).__code__
        for module in (torch.autograd, graph)
        if hasattr(module, "_engine_run_backward")
    ]
    found.append(BackwardPasses._around.__code__)
    wrap = getattr(torch.optim.Optimizer, "profile_hook_step", None)
    # Every call gives a function of the same code: that which calls the hooks around a step.
    return found if wrap is None else [*found, wrap(lambda _: None).__code__]
