"""The part of the recorder that is in C, where it was built, and what it shares with Python.

Rules of this file: no torch. The C part is optional: everything works without it, and the same rows
are written; only a module call costs more. `Words`, `Moment` and `Thread` are what both ways look
at; here they stand in Python, for an installation that has no compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_VERSION = 13
"""Of what the C part offers, as `_native.c` has it: raised with each change of it."""
IN_C: Any
"""The C part; None where it was not built for this Python, or is of another version than this."""

try:
    from . import _native as IN_C  # type: ignore[no-redef,attr-defined,unused-ignore]  # noqa: N812
except ImportError:
    IN_C = None
if getattr(IN_C, "VERSION", None) != _VERSION:  # as where sources were updated and not built anew
    IN_C = None


class PlainWords:
    """Gives rows their numbers.

    Attributes:
        take: Returns the word of the next row, each four more than the last.
    """

    __slots__ = ("_words", "take")

    def __init__(self, first: int) -> None:
        self._words = itertools.count(first, 4)
        self.take: Callable[[], int] = self._words.__next__

    @property
    def next(self) -> int:
        """The word that `take` will give next."""
        # A count tells its next number without moving on in one way only: by its text.
        return int(repr(self._words).strip("count()").partition(",")[0])


class PlainMoment:
    """What is the same for all module calls of a moment.

    Attributes:
        step: The number of the step in progress.
        due_ns: When memory is to be sampled next, by the monotonic clock.
        bytes: The newest sample of memory.
        passes: Another number with each backward pass that begins.
    """

    __slots__ = ("bytes", "due_ns", "passes", "step")

    def __init__(self) -> None:
        self.step = self.due_ns = self.bytes = self.passes = 0


class PlainThread:
    """What one thread is in the middle of: the part of it that rows of modules need.

    Attributes:
        depth: Module calls it is inside of.
        facts: What of an opened row is the thread's own, packed, by depth.
        passes: Backward passes that it is inside of.
        floor: How many of the modules whose backward pass is under way in it belong to passes
            around the innermost one.
        backward_facts: As `facts`, of rows of the backward pass.
        recomputing: Whether it runs forward code inside a backward pass.
        seen_passes: The `passes` of the moment at which it has looked last.
        first_new: The first number of the nodes of autograd's graph that it has made since.
    """

    __slots__ = (
        "backward_facts",
        "depth",
        "facts",
        "first_new",
        "floor",
        "passes",
        "recomputing",
        "seen_passes",
    )
    depth: int
    facts: list[bytes]
    passes: int
    floor: int
    backward_facts: list[bytes]
    recomputing: bool
    seen_passes: int
    first_new: int


if TYPE_CHECKING or IN_C is None:
    Words = PlainWords
    Moment = PlainMoment
    Thread = PlainThread
else:
    Words, Moment, Thread = IN_C.Words, IN_C.Moment, IN_C.Thread


def new_moment() -> PlainMoment:
    """A moment before the first sample."""
    from .format import NULL_INT

    moment = Moment()
    moment.bytes = NULL_INT
    return moment
