"""What differs between the ranks of a job.

Rules of this file: pure. Facts of one kind and name are compared by their values; ranks with equal
values are one group, and the smallest group is the odd one out, unless no group is the largest.
What differs by its nature, such as the host, is told apart. Parameters are compared between ranks
that looked at the same step, and a shard of a parameter with no other shard. What is secret shows
as equal or different, never as itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from ...messages.frozen import dataclass
from .naming import Rank, in_order

PARAMETER, OPTIMIZER = "parameter", "optimizer"
AT_STEP = frozenset({PARAMETER, "buffer", "statistic", OPTIMIZER, "random"})
"""Kinds of facts that are compared between ranks that looked at the same step."""
BY_NATURE = frozenset({"place", "argument", "seed", "statistic", "random"})
"""Kinds of facts that are told, but are no fault where they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that is so on a rank.

    Attributes:
        kind: Such as ``setting``, ``environment``, ``version``, or one of `AT_STEP`.
        value: What it is compared by; None where it is not set.
        about: A few words beside the name.
        is_secret: Whether the value must not be shown.
    """

    kind: str
    name: str
    value: str | None
    about: str = ""
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What is so on one rank.

    Attributes:
        step: The step at whose end its parameters were looked at; None where they were not, or no
            step is counted.
        sharded: How many of its parameters are shards, which are not compared.
    """

    rank: Rank
    facts: tuple[Fact, ...] = ()
    step: int | None = None
    sharded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The ranks that agree.

    Attributes:
        value: What they agree in; None where it is not set there.
    """

    value: str | None
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same everywhere.

    Attributes:
        groups: The smallest first.
        odd: The ranks outside of the largest group; empty where there is no largest.
    """

    kind: str
    name: str
    about: str
    groups: tuple[Group, ...]
    odd: tuple[Rank, ...]
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What ranks agree in and what not.

    Attributes:
        ranks: Those that were compared.
        differences: What is not the same and should be.
        places: What is not the same by its nature.
        equal: How many things of each kind are the same everywhere.
        steps: At which step parameters were looked at, by whom; the largest group is the one in
            which they are compared.
        sharded: How many parameters are shards.
    """

    ranks: tuple[Rank, ...]
    differences: tuple[Difference, ...] = ()
    places: tuple[Difference, ...] = ()
    equal: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Group, ...] = ()
    sharded: int = 0

    @property
    def odd(self) -> tuple[Rank, ...]:
        """The ranks that differ from most others in anything."""
        return in_order(rank for one in self.differences for rank in one.odd)


def compare_facts(ranks: Sequence[RankFacts]) -> Comparison:
    """Put the facts of all ranks beside each other."""
    steps = groups_of({one.rank: _words(one.step) for one in ranks if _has_parameters(one)})
    at_one_step = frozenset(steps[-1].ranks) if steps else frozenset[Rank]()
    values: dict[tuple[str, str], dict[Rank, Fact]] = {}
    for one in ranks:
        for fact in one.facts:
            if fact.kind not in AT_STEP or one.rank in at_one_step:
                values.setdefault((fact.kind, fact.name), {})[one.rank] = fact
    everyone = {one.rank: one for one in ranks}
    kinds_of = {one.rank: {fact.kind for fact in one.facts} for one in ranks}
    equal: Counter[str] = Counter()
    different: list[Difference] = []
    for (kind, name), facts in values.items():
        asked = at_one_step if kind in AT_STEP else everyone
        known = {rank: facts.get(rank) for rank in asked if kind in kinds_of[rank]}
        groups = groups_of({rank: fact.value if fact else None for rank, fact in known.items()})
        if len(groups) < 2:
            equal[kind] += 1
        else:
            different.append(_difference(kind, name, groups, next(iter(facts.values()))))
    return Comparison(
        ranks=in_order(everyone),
        differences=tuple(one for one in different if one.kind not in BY_NATURE),
        places=tuple(one for one in different if one.kind in BY_NATURE),
        equal=dict(equal),
        steps=steps,
        sharded=max((one.sharded for one in ranks), default=0),
    )


def groups_of(values: Mapping[Rank, str | None]) -> tuple[Group, ...]:
    """The ranks by what they say, the smallest group first."""
    found: dict[str | None, list[Rank]] = {}
    for rank in in_order(values):
        found.setdefault(values[rank], []).append(rank)
    groups = [Group(value=value, ranks=tuple(ranks)) for value, ranks in found.items()]
    return tuple(sorted(groups, key=lambda group: len(group.ranks)))


def odd_ranks(groups: Sequence[Group]) -> tuple[Rank, ...]:
    """The ranks outside of the largest group; none where two are as large."""
    if len(groups) < 2 or len(groups[-1].ranks) == len(groups[-2].ranks):
        return ()
    return in_order(rank for group in groups[:-1] for rank in group.ranks)


def _difference(kind: str, name: str, groups: Sequence[Group], fact: Fact) -> Difference:
    shown = [Group(value=None, ranks=group.ranks) for group in groups]
    return Difference(
        kind=kind,
        name=name,
        about=fact.about,
        groups=tuple(shown if fact.is_secret else groups),
        odd=odd_ranks(groups),
        is_secret=fact.is_secret,
    )


def _has_parameters(one: RankFacts) -> bool:
    return any(fact.kind in AT_STEP for fact in one.facts)


def _words(step: int | None) -> str | None:
    return None if step is None else str(step)
