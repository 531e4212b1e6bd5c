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

from ...calls import dynamo
from ...stand_in import StandIn


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


class MethodStandIn(StandIn):
    """One method, and what stands in for it."""

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
        pieces: Any = around  # three functions, where other stand-ins have one
        super().__init__(owner, name, pieces, helpers)
        self._maker = maker

    def _there(self) -> Any:
        """The very object, which is not what is called."""
        return vars(self.owner).get(self.name)

    def _make(self, original: Callable[..., object]) -> Any:
        original, around = getattr(self.owner, self.name), self._around
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
        method.__code__ = method.__code__.replace(co_name=self.name)
        dynamo.leave_out(method.__code__)
        helpers = (begin.__func__, ended.__func__, failed.__func__, *self._helpers)
        dynamo.leave_out_with_calls(helper.__code__ for helper in helpers)
        return functools.wraps(original)(method)
