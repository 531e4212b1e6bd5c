"""Asks many node servers, through some of them where they are too many for one to ask.

Rules of this file: knows neither what is asked nor how. A node that a leader has not reached, and
a leader that fails, is asked again: its group by the next one first, and in the end each by itself.
So the account of every node is exact, and the way through others can only save work.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...errors import InternalError, NotAnswering, ProbingError
from .parallel import done_of, run_at_once

T = TypeVar("T")

FAN_OUT = 32
"""How many nodes one asks at most; beyond, it hands on so many groups."""
FAN_OUTS = range(2, 65)
"""What a request may say of it."""
_SHARE = 0.6
"""How much of the time that is left a leader has, so that there is some for asking others."""
_LEADERS = 2
"""How many nodes of a group are tried as its leader."""
_LEAST_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached(Generic[T]):
    """What a leader gave.

    Attributes:
        nodes: Those that it accounts for.
    """

    value: T
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[T]):
    """What came of all nodes.

    Attributes:
        values: What was given, in the order of the nodes.
        failed: Why the others gave nothing, when they were asked by themselves.
    """

    values: tuple[Reached[T], ...]
    failed: dict[str, ProbingError]


Ask = Callable[[Sequence[str], float], Reached[T]]
"""Asks the first of some nodes for all of them, within so many seconds."""


def groups_of(nodes: Sequence[str], fan_out: int) -> list[Sequence[str]]:
    """At most so many groups of about the same size, in order."""
    count = min(fan_out, len(nodes))
    edges = [len(nodes) * i // count for i in range(count + 1)] if count else []
    return [nodes[a:b] for a, b in itertools.pairwise(edges)]


def ask_nodes(
    nodes: Sequence[str],
    ask: Ask[T],
    *,
    timeout_s: float,
    fan_out: int = FAN_OUT,
    alike: Callable[[str], Hashable] = lambda _: None,
    final: frozenset[str] = frozenset(),
) -> Asked[T]:
    """Ask all nodes; never raises for one that fails.

    Args:
        ask: Raises where the first of them cannot be asked.
        alike: Only nodes for which this is equal are put into one group.
        final: The codes of errors of a leader for which nobody of its group is asked again.
    """
    kinds: dict[Hashable, list[str]] = {}
    for node in nodes:
        kinds.setdefault(alike(node), []).append(node)
    asking = _Asking(ask, timeout_s, final)
    groups = [group for those in kinds.values() for group in groups_of(those, fan_out)]
    asking.each(asking.ask_group, groups)
    return asking.asked(nodes)


class _Asking(Generic[T]):
    """The nodes of one question."""

    def __init__(self, ask: Ask[T], timeout_s: float, final: frozenset[str]) -> None:
        self._question, self._timeout_s, self._final = ask, timeout_s, final
        self._until = time.monotonic() + timeout_s
        self._lock = threading.Lock()
        self._reached: list[Reached[T]] = []
        self._failed: dict[str, ProbingError] = {}

    def asked(self, nodes: Sequence[str]) -> Asked[T]:
        """What is there now; who is not by now is late."""
        order = {node: place for place, node in enumerate(nodes)}
        with self._lock:
            values = sorted(self._reached, key=lambda one: order[one.nodes[0]])
            failed = dict(self._failed)
        done = {node for one in values for node in one.nodes}
        for node in order.keys() - done - failed.keys():
            failed[node] = NotAnswering(node, self._timeout_s)
        return Asked(
            values=tuple(values), failed={n: failed[n] for n in order if n in failed.keys() - done}
        )

    def each(self, work: Callable[[Sequence[str]], None], groups: Sequence[Sequence[str]]) -> None:
        """Do the work for all groups at once, as long as there is time."""
        tasks = [_bound(work, group) for group in groups]
        for done in run_at_once(tasks, timeout_s=self._left(), at_once=FAN_OUT):
            if done is not None and done.error is not None:
                raise done.error

    def ask_group(self, group: Sequence[str]) -> None:
        """Ask through its first node, else through its second, and those left by themselves."""
        alone: list[str] = []
        for _ in range(_LEADERS):
            if len(group) < 2:
                break
            answer = self._ask(group, self._left() * _SHARE)
            if isinstance(answer, Reached):
                self._keep(answer)
                group = [node for node in group if node not in answer.nodes]
                break
            if answer.code in self._final:
                self._fail(group, answer)
                return
            alone.append(group[0])
            group = group[1:]
        self.each(self._ask_one, [[node] for node in (*alone, *group)])

    def _ask_one(self, nodes: Sequence[str]) -> None:
        """Ask a node by itself; what it says is what there is."""
        answer = self._ask(nodes, self._left())
        if isinstance(answer, Reached):
            self._keep(answer)
        else:
            self._fail(nodes, answer)

    def _ask(self, nodes: Sequence[str], limit_s: float) -> Reached[T] | ProbingError:
        """The answer of the first, which accounts for itself and for nobody that was not named."""
        done = done_of(lambda: self._question(nodes, limit_s))
        if done.value is not None:
            told = done.value.nodes
            if nodes[0] in told and set(told) <= set(nodes) and len(set(told)) == len(told):
                return done.value
            return InternalError(f"{nodes[0]} has answered for others than those asked for")
        if isinstance(done.error, ProbingError):
            return done.error
        return InternalError(f"{type(done.error).__name__}: {done.error}")

    def _keep(self, answer: Reached[T]) -> None:
        with self._lock:
            self._reached.append(answer)

    def _fail(self, nodes: Sequence[str], error: ProbingError) -> None:
        with self._lock:
            self._failed.update(dict.fromkeys(nodes, error))

    def _left(self) -> float:
        return max(_LEAST_S, self._until - time.monotonic())


def _bound(work: Callable[[Sequence[str]], None], group: Sequence[str]) -> Callable[[], None]:
    return lambda: work(group)
