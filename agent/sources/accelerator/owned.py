"""What CUDA has made for the agent, which nothing but the process that had it made may destroy.

Rules of this file: a forked child has no CUDA. Where it destroys an event or pinned memory of its
parent, torch's destructor throws, and the child ends by SIGABRT. Children come at every new epoch,
as workers of a DataLoader. So all such objects are held here, beside whoever uses them, and what
holds them is itself held for ever, even at the end of the interpreter.
"""

from __future__ import annotations

import os
from typing import Any


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
