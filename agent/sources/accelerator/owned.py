"""What CUDA has made for the agent, which nothing but the process that had it made may destroy.

Rules of this file: a forked child has no CUDA. Where it destroys an event or pinned memory of its
parent, torch's destructor throws, and the child ends by SIGABRT. Children come at every new epoch,
as workers of a DataLoader. So all such objects are held here, beside whoever uses them, and what
holds them is itself held for ever, even at the end of the interpreter. Where the agent has had any
made, this module stays when it leaves, so that the next one uses them again; hence it imports
nothing of ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

_Made = TypeVar("_Made")
_pools: dict[tuple[int, object], Any] = {}


def pool_of(key: object, make: Callable[[], _Made]) -> _Made:
    """What is made once in a process, and is there for the next agent that comes into it.

    It holds plain containers and what CUDA has made: the next agent may be of another version.
    """
    found: _Made = _pools.setdefault((os.getpid(), key), make())
    return found


def is_needed() -> bool:
    """Whether anything is held for the next agent."""
    return any(isinstance(pool, Owned) and len(pool) for pool in _pools.values())


class Owned:
    """Objects that live until the process that had them made lets go of them."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._objects: dict[int, Any] = {}
        self._is_lasting = False

    def keep(self, thing: object) -> None:
        """Hold an object, until `release`."""
        if not self._is_lasting:
            _make_lasting(self._objects)
            self._is_lasting = True
        self._objects[id(thing)] = thing

    def release(self, thing: object) -> None:
        """It may go, unless this is a forked child."""
        if os.getpid() == self._pid:
            self._objects.pop(id(thing), None)

    def __len__(self) -> int:
        return len(self._objects)


def _make_lasting(thing: object) -> None:
    """Have an object outlive the interpreter: one reference to it is never given back."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
