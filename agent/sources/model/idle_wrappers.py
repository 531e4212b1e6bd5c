"""Wrappers that average gradients over ranks, and that nobody has ever called, or holds any more.

Rules of this file: runs in the agent's thread while others train; compares classes, and reads what
torch itself keeps of each wrapper. Nothing read stays referenced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..calls.names.class_names import class_name
from ..calls.names.module_names import walk
from ..storage.living import objects_of
from ..torch_types import Module

GONE = "DistributedDataParallel (gone)"


def idle_wrappers(roots: Iterable[Module], unwrapped: Iterable[Module]) -> dict[int, str]:
    """The class of the wrapper around each parameter of some roots that was never called.

    Torch sets up what averages gradients in the wrapper's first forward, and keeps that it has: so
    it is known also of calls before the agent came, and of compiled ones.

    Args:
        unwrapped: Modules that have outlived a wrapper.

    Returns:
        By ``id(parameter)``; without those that a wrapper has, too, which was called.
    """
    torch: Any = sys.modules["torch"]
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return {}
    cls = torch.nn.parallel.DistributedDataParallel
    called: set[int] = set()
    inside: set[int] = set()
    for root in roots:
        inside |= _parameters(root)
        for _, module in walk(root, "", set()):
            if isinstance(module, cls) and not _is_idle(module):
                called |= _parameters(module)
    if inside <= called:
        return {}  # as in every healthy job: nothing is looked for
    gone = {key: GONE for module in unwrapped for key in _parameters(module)}
    return _of_idle(objects_of((cls,)), called, gone)


def _of_idle(wrappers: Iterable[Module], called: set[int], found: dict[int, str]) -> dict[int, str]:
    """The parameters of those that were never called.

    Args:
        called: Parameters of others that were.
        found: Those of wrappers that are gone.
    """
    for wrapper in wrappers:
        if _is_idle(wrapper):
            found |= dict.fromkeys(_parameters(wrapper), class_name(wrapper))
        elif "_modules" in vars(wrapper):
            called |= _parameters(wrapper)
    return {key: name for key, name in found.items() if key not in called}


def _is_idle(wrapper: Module) -> bool:
    """Whether it was made for several ranks, and its forward has never been called."""
    own = vars(wrapper)
    group = own.get("process_group")
    return own.get("_lazy_init_ran") is False and group is not None and group.size() > 1


def _parameters(module: Module) -> set[int]:
    """The identities of all its parameters."""
    return {
        id(parameter)
        for _, part in walk(module, "", set())
        for parameter in list(part._parameters.values())
        if parameter is not None
    }
