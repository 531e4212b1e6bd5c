"""Puts functions of ours in the place of methods of classes that torch has in C++.

Rules of this file: each function has the name of the method in its code, and the object as its one
named argument, and calls the original itself: by these three a Python subclass's call of the method
of its base class is told from a call of its own, which would come back here for ever. As in
`..stand_in`, torch.compile never compiles ours, and what somebody has put over ours stays.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from .....safety.guard import Guard
from ...calls import dynamo


class Around(Protocol):
    """What is done before and after a call; never raises."""

    def begin(self, target: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """It is about to be called; None to leave this call alone."""

    def ended(self, begun: Any, result: object) -> None:
        """It has returned."""

    def failed(self, begun: Any, error: BaseException) -> None:
        """It has raised."""


class Maker(Protocol):
    """Makes a function that does the usual case in one piece."""

    def __call__(
        self, original: Callable[..., object], switch: MethodStandIn, usual: Callable[..., object]
    ) -> Callable[..., Any]:
        """The function.

        Args:
            original: What is to be called, exactly once.
            switch: Says whether to do more than that.
            usual: Does it in several pieces, whatever the case.
        """


class MethodStandIn:
    """One method, and what stands in for it.

    Attributes:
        is_on: Whether the one in its place is to do more than pass calls through.
    """

    def __init__(
        self,
        owner: Any,
        name: str,
        around: Around,
        helpers: Iterable[Callable[..., object]] = (),
        maker: Maker | None = None,
    ) -> None:
        """Prepare, and change nothing yet.

        Args:
            helpers: What `around` calls, and what `maker` makes.
            maker: Makes what stands in where a call has to be cheap.
        """
        self._maker = maker
        self._owner = owner
        self._name = name
        self._around = around
        self._helpers: tuple[Any, ...] = (*helpers, Guard.run, Guard.fault)
        self._original: Any = None
        self._ours: Any = None
        self.is_on = False

    def start(self) -> None:
        """Stand in; does nothing where this torch has no such method."""
        original = vars(self._owner).get(self._name)
        if self._ours is None and original is not None:
            self._original, self._ours = original, self._make()
            setattr(self._owner, self._name, self._ours)
        self.is_on = self._ours is not None

    def stop(self) -> None:
        """Put the very object back that was there, unless another one lies over ours."""
        self.is_on = False
        if self._ours is not None and vars(self._owner).get(self._name) is self._ours:
            setattr(self._owner, self._name, self._original)
            self._ours = None

    def remains(self) -> list[str]:
        """What stays in place after `stop`, one sentence each."""
        if self._ours in (None, vars(self._owner).get(self._name)):
            return []
        return [
            f"the wrapper of {self._owner.__name__}.{self._name}: another one, put over it, calls"
            " it. It passes every call through unchanged."
        ]

    def _make(self) -> Any:
        original = getattr(self._owner, self._name)
        around: Any = self._around
        begin, ended, failed = around.begin, around.ended, around.failed
        is_compiling = sys.modules["torch"].compiler.is_dynamo_compiling
        mine = self

        def method(target: object, *args: object, **kwargs: object) -> Any:
            if is_compiling() or not mine.is_on:
                return original(target, *args, **kwargs)
            begun = begin(target, args, kwargs)
            if begun is None:
                return original(target, *args, **kwargs)
            try:
                result = original(target, *args, **kwargs)
            except BaseException as error:
                failed(begun, error)
                raise
            ended(begun, result)
            return result

        if self._maker is not None:
            dynamo.leave_out(method.__code__)
            method = self._maker(original, self, method)
        method.__code__ = method.__code__.replace(co_name=self._name)
        dynamo.leave_out(method.__code__)
        helpers = (begin.__func__, ended.__func__, failed.__func__, *self._helpers)
        dynamo.leave_out_with_calls(helper.__code__ for helper in helpers)
        return functools.wraps(original)(method)
