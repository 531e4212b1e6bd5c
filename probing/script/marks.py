"""What a script can tell of itself: where its steps end, what it is doing, what it has measured.

Rules of this file: standard library only, and nothing happens without an agent, so that a script
may keep its marks for good. Never raises, whatever is marked. Not to be called inside a region that
torch.compile compiles: there it would break the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar, cast

_MOST_OPEN = 255
"""How many open spans are looked at; a script may begin some and never end them."""
HAS_ENOUGH = "_StopRecomputationError"
"""What torch ends the recomputation of a checkpoint with, once that has made all that the backward
pass needs."""
_NO_FAILURES = frozenset({"GeneratorExit", HAS_ENOUGH})
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Cleaning(NamedTuple):
    """What is to be done about memory before it is read, or right after.

    Attributes:
        gc: Collect garbage first.
        empty_cache: Give back first what is allocated and not in use.
        reset_peaks: Have the device's peaks begin anew after.
    """

    gc: bool = False
    empty_cache: bool = False
    reset_peaks: bool = False


class Recorder(Protocol):
    """What the agent does with marks."""

    def step_ended(self) -> None:
        """A training step has ended."""

    def span_began(self, name: str, depth: int) -> object:
        """A span begins in so many others; returns what `span_ended` is to be given."""

    def span_ended(self, begun: object, *, failed: bool) -> None:
        """A span has ended."""

    def measured(self, values: dict[str, Any]) -> None:
        """Something has been measured."""

    def memory_seen(self, label: str, cleaning: Cleaning) -> None:
        """The script wants to know what memory is in use now."""


recorder: Recorder | None = None
"""The agent's, while it records."""
own_tables: dict[str, Any] = {}
"""Each `own_tables.ScriptTable` that the script has declared, by its name. They stand here, so that
an agent starts without what only scripts with such tables need."""
open_table: Callable[[Any], None] | None = None
"""Gives such a table what writes it, while an agent is there."""


def attend_tables(open_each: Callable[[Any], None]) -> None:
    """Have somebody record the script's tables, those that are declared and those that will be.

    Args:
        open_each: Gives a table what writes it, unless it has that already, as where another thread
            declares it just now; raises nothing.
    """
    global open_table  # noqa: PLW0603 - of the process, as the agent is
    open_table = open_each
    for table in tuple(own_tables.values()):
        open_each(table)


def leave_tables() -> None:
    """Nobody records them any more; takes no lock, for a forked child asks for it."""
    global open_table  # noqa: PLW0603 - as in `attend_tables`
    open_table = None
    for table in tuple(own_tables.values()):
        table.write = None


def step() -> None:
    """Say that a training step ends here.

    For loops whose steps cannot be seen, since no optimizer of torch makes them. From the first
    call on, steps are counted by these calls alone.
    """
    if recorder is not None:
        recorder.step_ended()


def metric(**values: Any) -> None:
    """Record figures of the step in progress, or that has just ended, into python.metrics.

    A tensor of one element is read without waiting for its device.

    Args:
        values: Numbers by name, such as ``probing.metric(reward=0.5)``. What is no number is
            recorded as NULL.
    """
    if recorder is not None:
        recorder.measured(values)


def see_memory(
    label: str, *, gc: bool = False, empty_cache: bool = False, reset_peaks: bool = False
) -> None:
    """Record what memory is in use now, into python.memory, as a row of phase ``mark``.

    As it stands it resets no peak and waits for no device.

    Args:
        label: What to call this moment, such as ``"before fwd"``.
        gc: Collect garbage first, which takes tens of milliseconds and more.
        empty_cache: First give back what is allocated and not in use: the cache of the
            accelerator's allocator, which waits for the device; without one, what the C library
            holds free.
        reset_peaks: Have the device's peaks begin anew after, so that the next row tells those
            since this one. What the script itself reads of peaks begins anew, too.
    """
    if recorder is not None:
        recorder.memory_seen(label, Cleaning(gc, empty_cache, reset_peaks))


class span(ContextDecorator):  # noqa: N801 - called like a function, as contextlib's are
    """Record how long something takes, into python.spans.

    A context manager, ``with probing.span("checkpoint"):``, and a decorator,
    ``@probing.span("evaluate")``, of coroutines and generators, too. The row is open while it
    lasts. One span may be used by several threads and tasks at once.
    """

    def __init__(self, name: str) -> None:
        self._name = str(name)
        self._begun: list[_Begun] = []

    def __getstate__(self) -> dict[str, Any]:
        """A copy is another one like it, in which nothing has begun."""
        return {**self.__dict__, "_begun": []}

    def _recreate_cm(self) -> span:
        """Each call of a decorated function is a span of its own."""
        return span(self._name)

    def __call__(self, func: _Function) -> _Function:
        """Have each call of a function be a span; a coroutine or generator, until it has run."""
        from .decorated import lasting

        made = lasting(func, self._recreate_cm) or super().__call__(func)
        return cast("_Function", made)

    def __enter__(self) -> None:
        """Begin."""
        if recorder is not None:
            around = [one for one in _open_here.get() if not one.is_over][-_MOST_OPEN:]
            begun = _Begun(recorder, recorder.span_began(self._name, len(around)))
            self._begun.append(begun)
            _open_here.set((*around, begun))

    def __exit__(self, kind: object, *_: object) -> None:
        """End, by an exception or without; a generator that is closed has not failed."""
        begun = self._last() if self._begun else None
        if begun is not None:
            begun.is_over = True
            failed = kind is not None and getattr(kind, "__name__", "") not in _NO_FAILURES
            begun.recorder.span_ended(begun.row, failed=failed)

    def _last(self) -> _Begun | None:
        """What has begun here last; else what has begun last, as a generator may end elsewhere."""
        here = _open_here.get()
        try:
            # Of a copy: other threads end theirs meanwhile, and a list walked then skips some.
            of_here = [one for one in self._begun.copy() if one in here]
            begun = (of_here or self._begun)[-1]
            self._begun.remove(begun)
        except (IndexError, ValueError):  # nothing has begun, or another thread has ended it
            return None
        return begun


class _Begun:
    """A span that is open.

    Attributes:
        row: What its recorder wants to be told as it ends.
    """

    __slots__ = ("is_over", "recorder", "row")

    def __init__(self, recorder: Recorder, row: object) -> None:
        self.recorder, self.row = recorder, row
        self.is_over = False


_open_here: ContextVar[tuple[_Begun, ...]] = ContextVar("probing_open_spans", default=())
"""Those of this thread or task, and those around it; some may be over."""
