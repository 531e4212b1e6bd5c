"""What we hang on a module, and what a copy of that module has in its place.

Rules of this file: whatever of ours can be on a module while code of the job runs is one of these.
A model that is pickled or copied takes its hooks along: a function inside another one cannot be
pickled, and a bound method would have what it belongs to copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class ModuleHook:
    """A hook that stays behind: a copy or a pickle has one that does nothing and needs no probing.

    It takes the arguments by position only, as torch calls hooks.

    Attributes:
        is_on: To be false before it is taken off in another thread, in which torch may be about to
            call it without the keyword arguments that it was registered for.
    """

    def __init__(self, call: Callable[..., None]) -> None:
        self.is_on = True
        self._call = call

    def __call__(self, *args: object) -> None:
        """As torch calls it."""
        if self.is_on:
            self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        """What stands for it: a function of the standard library that returns None."""
        return getattr, (contextlib.nullcontext(), "__exit__")
