"""Which ranks do the same work, so that they can be compared.

Rules of this file: pure. Ranks of one cohort take part in the same kinds of collectives, send
messages to, and receive them from, ranks of the same cohorts, and train, or do not. So the replicas
of a pipeline's stage are compared, and its stages are not: which of two neighbors comes first is
told by their numbers. Neighbors that exchange, as in a ring or at the edges of a grid, both begin
alike: neither is first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from .times import MESSAGES, Collective, RankTimes

_Beginnings = Mapping[tuple[str | None, int | None, int | None], str]
"""By job, rank and peer, how the messages of most steps begin."""


def cohorts_of(ranks: Sequence[RankTimes]) -> list[list[RankTimes]]:
    """The ranks that have told of steps, those of the same work together, the largest first."""
    told = [one for one in ranks if one.steps]
    places = {(one.job, one.number): place for place, one in enumerate(told)}
    begins: _Beginnings = {
        (one.job, one.number, peer): how for one in told for peer, how in _begins(one)
    }
    links = [
        [(way, places.get((one.job, peer))) for way, peer in _links(one, begins)] for one in told
    ]
    work = _numbered(_kinds(one, is_linked=bool(own)) for one, own in zip(told, links, strict=True))
    for _ in told:  # each round tells those apart whose neighbors are
        finer = _numbered(
            (number, frozenset((way, None if at is None else work[at]) for way, at in own))
            for number, own in zip(work, links, strict=True)
        )
        if max(finer) == max(work):
            break
        work = finer
    groups: dict[int, list[RankTimes]] = {}
    for one, number in zip(told, work, strict=True):
        groups.setdefault(number, []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def _numbered(values: Iterable[Hashable]) -> list[int]:
    """A number for each value, the same for equal ones."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(value, len(known)) for value in values]


def _kinds(one: RankTimes, *, is_linked: bool) -> Hashable:
    """The job, the kinds of collectives of a rank, and whether it goes backward in its steps.

    A process of no job that takes part in none is alone: it shares no work with others.
    """
    kinds = frozenset((c.op, c.size) for c in one.collectives if c.op not in MESSAGES)
    is_of_none = isinstance(one.rank, str) and one.job is None and not kinds and not is_linked
    trains = any(step.phases.get("backward", 0.0) > 0.0 for step in one.steps)
    return one.rank if is_of_none else (one.job, kinds, trains)


def _messages(one: RankTimes) -> dict[int, dict[int, list[Collective]]]:
    """The messages of a rank, by whom it exchanges them with, and by step."""
    found: dict[int, dict[int, list[Collective]]] = {}
    for c in one.collectives:
        if c.op in MESSAGES and c.peer is not None:
            found.setdefault(c.peer, {}).setdefault(c.step, []).append(c)
    return found


def _begins(one: RankTimes) -> Iterator[tuple[int, str]]:
    """With whom a rank exchanges messages, and how these begin in most steps."""
    for peer, steps in _messages(one).items():
        yield peer, Counter(map(_beginning, steps.values())).most_common(1)[0][0]


def _beginning(messages: Sequence[Collective]) -> str:
    """How the messages of a step with one peer begin.

    A `recv` that is over before the first `send` may be what that answers; one that is not has only
    been posted early.
    """
    first = min(messages, key=lambda c: c.start_ns)
    send_ns = min((c.start_ns for c in messages if c.op == "send"), default=None)
    is_over = first.end_ns is not None and (send_ns is None or first.end_ns <= send_ns)
    return "answer" if first.op == "recv" and is_over else first.op


def _links(one: RankTimes, begins: _Beginnings) -> Iterator[tuple[Hashable, int]]:
    """In which way a rank exchanges messages in most steps, and with whom."""
    for peer, steps in _messages(one).items():
        if 2 * len(steps) < len(one.steps):
            continue
        own = {c.op for messages in steps.values() for c in messages}
        # What goes one way tells by itself who comes first; in a ring nobody does.
        is_after = len(own) > 1 and one.number is not None and peer > one.number
        its_own = begins.get((one.job, peer, one.number))
        is_exchange = its_own == begins[one.job, one.number, peer]
        yield (frozenset(own), is_after and not is_exchange), peer
