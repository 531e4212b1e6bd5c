"""What threads wait to be told by another one, and which running function tells it.

Rules of this file: runs in the agent's thread and no code of the job's. An event, a condition, a
queue and a barrier have no owner: whoever reaches them may set them. So the functions that stand
on the stacks of other threads are read for a call that does so with that very object; that
makes likely who is waited for, and proves nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ....stacks.thread_waits import NOBODY, NOTICES
from .bytecode import CodeReader
from .frame_values import line_of, local, own_attributes, value_of

_WAIT = threading.Condition.wait.__code__
_MOST_NAMED = 4
_FUTURES = "/concurrent/futures/"


class _Rule(NamedTuple):
    """A method that waits for a notice.

    Attributes:
        kind: See `Awaited`.
        what: In words; ``{}`` stands for how the code reaches the object.
        unnamed: The same where that cannot be told.
        asks: The methods by which it is waited for.
        tells: Those that end the wait.
    """

    kind: str
    what: str
    unnamed: str
    asks: frozenset[str]
    tells: frozenset[str]


class Notice(NamedTuple):
    """What a thread waits to be told.

    Attributes:
        thing: The object that is waited for.
        kind: See `Awaited`.
        what: See `Awaited`.
        tells: The methods that end the wait.
    """

    thing: Any
    kind: str
    what: str
    tells: frozenset[str]


class Teller(NamedTuple):
    """Who ends a wait by its code: one thread, or words about several or none."""

    ident: int | None
    since: str | None
    who: str | None


def _rule(kind: str, words: str, asks: str, tells: str) -> _Rule:
    """A rule; ``{}`` in its words stands for the noun with or without its name."""
    noun = {"item": "queue", "room": "queue"}.get(kind, kind)
    article = "an" if noun[0] in "aeiou" else "a"
    return _Rule(
        kind,
        words.replace("{}", f"the {noun} {{}}"),
        words.replace("{}", f"{article} {noun}"),
        frozenset(asks.split()),
        frozenset(tells.split()),
    )


_EVENT = _rule("event", "{}", "wait", "set")
_CONDITION = _rule("condition", "{}", "wait wait_for", "notify notify_all")
_SEMAPHORE = _rule("semaphore", "{}", "acquire __enter__", "release")
_BARRIER = _rule("barrier", "{}", "wait", "wait")
_ITEM = _rule("item", "an item of {}", "get", "put put_nowait")
_ROOM = _rule("room", "room in {}", "put", "get get_nowait")
_QUEUE = _rule("queue", "{} to be worked off", "join", "task_done")
_FUTURE = _rule("future", "{}", "result exception", "set_result set_exception")
_METHODS = (
    ("threading", "Condition", "wait", _CONDITION),
    ("threading", "Condition", "wait_for", _CONDITION),
    ("threading", "Event", "wait", _EVENT),
    ("threading", "Semaphore", "acquire", _SEMAPHORE),
    ("threading", "Barrier", "_wait", _BARRIER),
    ("threading", "Barrier", "wait", _BARRIER),
    ("queue", "Queue", "get", _ITEM),
    ("queue", "Queue", "put", _ROOM),
    ("queue", "Queue", "join", _QUEUE),
    ("concurrent.futures._base", "Future", "result", _FUTURE),
    ("concurrent.futures._base", "Future", "exception", _FUTURE),
)


class Notices:
    """The waits for a notice at one moment.

    Args:
        stacks: The frames of each thread by its Python number, innermost first.
        numbers: Their kernel numbers.
        reader: Gives the instructions of a frame's code.
    """

    def __init__(
        self,
        stacks: Mapping[int, Sequence[FrameType]],
        numbers: Mapping[int, int],
        reader: Callable[[FrameType], CodeReader],
    ) -> None:
        self._stacks = stacks
        self._numbers = numbers
        self._reader = reader
        self._rules = dict(_rules())
        self._sought: dict[int, Notice | None] = {}
        self._tellers: dict[tuple[int, str], dict[int, str]] | None = None

    def sought(self, ident: int) -> Notice | None:
        """What a thread waits to be told; None where it does something else."""
        if ident not in self._sought:
            self._sought[ident] = self._seek(self._stacks.get(ident, ()))
        return self._sought[ident]

    def teller(self, ident: int, notice: Notice) -> Teller:
        """Whose running function ends the wait of a thread."""
        found: dict[int, str] = {}
        for method in notice.tells:
            for other, line in self._telling().get((id(notice.thing), method), {}).items():
                mine = self.sought(other)
                is_same = mine is not None and mine[:2] == notice[:2]  # it waits for it itself
                if other != ident and not is_same:
                    found.setdefault(other, line)
        if len(found) == 1:
            ((other, since),) = found.items()
            return Teller(other, since, None)
        if not found:
            return Teller(None, None, NOBODY[notice.kind])
        threads = sorted(self._numbers.get(one, 0) for one in found)
        more = f" and {len(threads) - _MOST_NAMED} more" if len(threads) > _MOST_NAMED else ""
        names = f"{', '.join(map(str, threads[:_MOST_NAMED]))}{more}"
        verb = NOTICES[notice.kind]
        return Teller(None, None, f"which by its code any of threads {names} {verb}")

    def _seek(self, frames: Sequence[FrameType]) -> Notice | None:
        if not frames or frames[0].f_code is not _WAIT:
            return None
        depth = 0
        while depth + 1 < len(frames) and frames[depth + 1].f_code in self._rules:
            depth += 1
        caller = frames[depth + 1] if depth + 1 < len(frames) else None
        if caller is None or _FUTURES in caller.f_code.co_filename:
            return None
        rule, thing = self._rules[frames[depth].f_code], local(frames[depth], "self")
        expression = self._reader(caller).awaited(caller.f_lasti, rule.asks)
        is_it = expression is not None and value_of(caller, expression) is thing
        what = rule.what.format(expression) if is_it else rule.unnamed
        if rule is _BARRIER:
            what += _count_of(thing)
        return Notice(thing, rule.kind, what, rule.tells)

    def _telling(self) -> dict[tuple[int, str], dict[int, str]]:
        """By object and method, the threads whose functions reach it, with the innermost line."""
        if self._tellers is None:  # all at once: there may be many threads
            self._tellers = {}
            sought = [one for ident in self._stacks if (one := self.sought(ident)) is not None]
            methods = frozenset[str]().union(*(one.tells for one in sought))
            things = {id(one.thing) for one in sought}
            for ident, frames in self._stacks.items():
                for frame in frames:
                    if methods.isdisjoint(frame.f_code.co_names):
                        continue
                    for method, expression, lineno in self._reader(frame).having(methods):
                        thing = id(value_of(frame, expression))
                        if thing in things:
                            found = self._tellers.setdefault((thing, method), {})
                            found.setdefault(ident, line_of(frame, lineno))
        return self._tellers


def permits_of(semaphore: object) -> int | None:
    """How many may have a semaphore at once; None where it does not know that any more."""
    found = own_attributes(semaphore).get("_initial_value")  # a BoundedSemaphore's
    return found if type(found) is int else None


def _rules() -> Iterator[tuple[CodeType, _Rule]]:
    """The rules by the code of the methods, of modules that are loaded."""
    for module, owner, method, rule in _METHODS:
        function = getattr(getattr(sys.modules.get(module), owner, None), method, None)
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code, rule


def _count_of(barrier: object) -> str:
    """How many have come to a barrier, where it tells."""
    own = own_attributes(barrier)
    there, parties = own.get("_count"), own.get("_parties")
    if type(there) is not int or type(parties) is not int:
        return ""
    return f" ({there} of {parties} are there)"
