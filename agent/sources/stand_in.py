"""Puts a function of ours in the place of one of torch's, and takes it away again.

Rules of this file: a function that somebody has put over ours stays where it is, and ours, which
it calls, then passes every call through unchanged. torch.compile traces the original in the place
of ours, and never compiles ours.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...safety.guard import Guard
from .calls import dynamo

if TYPE_CHECKING:
    from .shared.events import Events, StepLook

Wrapper = Callable[..., Any]
WAY = "_probing_makes_way"
"""The attribute of a function of ours by which it makes way; see `made_way`."""


def made_way(found: Any) -> Any:
    """What one is to stand in for: not what only waits for that, which makes way at once.

    Args:
        found: What is in the place that is taken now.
    """
    make_way = getattr(found, "__dict__", {}).get(WAY)
    return found if make_way is None else make_way(found)


class StandIn:
    """One function of torch, and what stands in for it.

    Attributes:
        is_on: Whether the one in its place is to do more than pass calls through.
        owner: The module or class whose attribute the function is.
        name: The name of that.
        original: What it stands in for; None before the first `start`.
        wrapper: What stands in; None while nothing does.
    """

    def __init__(
        self,
        owner: Any,
        name: str,
        around: Callable[..., object],
        helpers: Iterable[Callable[..., object]] = (),
    ) -> None:
        """Prepare, and change nothing yet.

        Args:
            around: Called as ``around(original, *args, **kwargs)`` in its place.
            helpers: What it calls beside the original and its guard.
        """
        self.owner = owner
        self.name = name
        self._around: Any = around
        self._helpers: tuple[Any, ...] = (*helpers, Guard.run, Guard.fault)
        self.original: Any = None
        self.wrapper: Wrapper | None = None
        self.is_on = self._is_inherited = False

    def start(self) -> None:
        """Stand in; does nothing where this torch has no such function."""
        original = self._there()
        if self.wrapper is None and callable(original):
            original = made_way(original)
            self._is_inherited = self.name not in vars(self.owner)  # by a class
            self.original, self.wrapper = original, self._make(original)
            setattr(self.owner, self.name, self.wrapper)
        self.is_on = self.wrapper is not None

    def stop(self) -> None:
        """Put the original back, unless another one lies over ours."""
        self.is_on = False
        if self.wrapper is not None and vars(self.owner).get(self.name) is self.wrapper:
            if self._is_inherited:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, self.original)
            self.wrapper = None

    def remains(self) -> list[str]:
        """What stays in place after `stop`, or would if it came now, one sentence each."""
        if self.wrapper in (None, vars(self.owner).get(self.name)):
            return []
        owner = getattr(self.owner, "__qualname__", self.owner.__name__)
        return [
            f"the wrapper of {owner}.{self.name}: another one, put over it, calls it. It passes"
            " every call through unchanged."
        ]

    def _there(self) -> Any:
        """What is in its place now, and is put back there."""
        return getattr(self.owner, self.name, None)

    def _make(self, original: Callable[..., object]) -> Wrapper:
        around, behind = self._around, cast("Any", self._behind)
        is_compiling = sys.modules["torch"].compiler.is_dynamo_compiling

        @functools.wraps(original)
        def stand_in(*args: object, **kwargs: object) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            if not self.is_on:
                return behind(original)(*args, **kwargs)
            return around(original, *args, **kwargs)

        wrapper: Any = stand_in
        dynamo.leave_out(wrapper.__code__)
        helpers = (behind, *self._helpers)
        dynamo.leave_out(around.__code__, [helper.__code__ for helper in helpers])
        return cast("Wrapper", wrapper)

    def _behind(self, original: Callable[..., object]) -> Callable[..., Any]:
        """What a call goes to that reaches ours after it was stopped."""
        return original


class PlainSource:
    """A source that closes as it stops, and leaves nothing but functions in torch's place."""

    _methods: Sequence[StandIn] = ()

    def stop(self) -> None:
        """Record no more."""
        for method in self._methods:
            method.stop()

    def close(self) -> None:
        """Stop for good."""
        self.stop()

    def remains(self) -> list[str]:
        """What stays in place after `close`, or would if it came now, one sentence each."""
        return [sentence for method in self._methods for sentence in method.remains()]


class StandInSource(PlainSource):
    """A source that is nothing but functions of ours in the place of torch's.

    Attributes:
        guard: Counts its faults; the last one that is borne stops it.
    """

    def __init__(
        self,
        name: str,
        methods: list[StandIn],
        events: Events,
        *,
        before_step: StepLook | None = None,
        after_step: StepLook | None = None,
    ) -> None:
        """Prepare, and change nothing yet.

        Args:
            before_step: What those who step are to call meanwhile, as is `after_step`.
        """
        self._methods: list[StandIn] = methods
        self._events, self._before, self._after = events, before_step, after_step
        self.guard = Guard(name, self.stop)

    @property
    def is_on(self) -> bool:
        """Whether it records."""
        return any(method.is_on for method in self._methods)

    def start(self) -> None:
        """Record from now on."""
        for method in self._methods:
            method.start()
        self._hear_steps(self._before, self._after)

    def _hear_steps(self, before: StepLook | None = None, after: StepLook | None = None) -> None:
        """Have those who step call these, too, from now on: at once, and whenever it is on."""
        self._before, self._after = before, after
        self._events.forget(before, after)
        if self._before is not None:
            self._events.before_step += (self._before,)
        if self._after is not None:
            self._events.after_step += (self._after,)

    def stop(self) -> None:
        """Record no more."""
        super().stop()
        self._events.forget(self._before, self._after)
