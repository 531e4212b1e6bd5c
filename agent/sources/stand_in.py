"""Puts a function of ours in the place of one of torch's, and takes it away again.

Rules of this file: a function that somebody has put over ours stays where it is, and ours, which
it calls, then passes every call through unchanged. torch.compile traces the original in the place
of ours, and never compiles ours.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, cast

from ..guard import Guard
from . import dynamo

Wrapper = Callable[..., Any]


class StandIn:
    """One function of torch, and what stands in for it.

    Attributes:
        is_on: Whether the one in its place is to do more than pass calls through.
        original: What it stands in for; None before the first `start`.
    """

    def __init__(
        self,
        owner: Any,
        name: str,
        around: Callable[..., Any],
        helpers: Iterable[Callable[..., Any]] = (),
    ) -> None:
        """Prepare, and change nothing yet.

        Args:
            owner: The module or class whose attribute the function is.
            around: Called as ``around(original, *args, **kwargs)`` in its place.
            helpers: What it calls beside the original and its guard.
        """
        self._owner = owner
        self._name = name
        self._around: Any = around
        self._helpers: tuple[Any, ...] = (*helpers, Guard.run, Guard.fault)
        self.original: Any = None
        self._wrapper: Wrapper | None = None
        self.is_on = False

    def start(self) -> None:
        """Stand in; does nothing where this torch has no such function."""
        original = vars(self._owner).get(self._name)
        if self._wrapper is None and callable(original):
            self.original, self._wrapper = original, self._make(original)
            setattr(self._owner, self._name, self._wrapper)
        self.is_on = self._wrapper is not None

    def stop(self) -> None:
        """Put the original back, unless another one lies over ours."""
        self.is_on = False
        if self._wrapper is not None and vars(self._owner).get(self._name) is self._wrapper:
            setattr(self._owner, self._name, self.original)
            self._wrapper = None

    def remains(self) -> list[str]:
        """What stays in place after `stop`, or would if it came now, one sentence each."""
        if self._wrapper in (None, vars(self._owner).get(self._name)):
            return []
        owner = getattr(self._owner, "__qualname__", self._owner.__name__)
        return [
            f"the wrapper of {owner}.{self._name}: another one, put over it, calls it. It passes"
            " every call through unchanged."
        ]

    def _make(self, original: Any) -> Wrapper:
        """The function that stands in."""
        around = self._around
        is_compiling = sys.modules["torch"].compiler.is_dynamo_compiling

        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not self.is_on:
                return original(*args, **kwargs)
            return around(original, *args, **kwargs)

        wrapper: Any = stand_in
        dynamo.leave_out(wrapper.__code__)
        dynamo.leave_out(around.__code__, [helper.__code__ for helper in self._helpers])
        return cast("Wrapper", wrapper)
