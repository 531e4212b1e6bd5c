"""The first collective of a group that its ranks do not agree on.

Rules of this file: pure functions. Ranks are compared at the same `seq`, the oldest first, and the
majority is believed; without a majority nobody is. What ranks may rightly differ in is left out:
the shapes of ops that take uneven parts, equally many elements in another shape, and sends and
receives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter

from ...messages.frozen import dataclass
from .evidence import POINT_TO_POINT, Call

Sequences = Mapping[int, Mapping[int, Call]]
"""By rank and by `seq`: the collectives of one group."""

_EVEN_OPS = frozenset({"all_reduce", "broadcast", "reduce", "gather"})
"""Ops whose ranks must all bring as many elements."""
_MOSTLY_EVEN_OPS = frozenset({"all_gather", "reduce_scatter"})
"""Ops whose ranks may bring uneven parts on some backends: they count where they do not end."""
_ASPECTS = ("op", "dtypes", "shapes", "root", "reduce_op")
_NUMBER = re.compile(r"\d+")
_ALL_ASPECTS = attrgetter(*_ASPECTS)
_NAMES = {
    "op": "op",
    "dtypes": "dtype",
    "shapes": "shape",
    "root": "root rank",
    "reduce_op": "reduce op",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A collective that ranks of a group do not agree on.

    Attributes:
        aspect: In what: ``op``, ``dtype``, ``shape``, ``root rank`` or ``reduce op``.
        usual: The ranks of the majority; empty where there is none.
        odd: The other ranks, or all where there is no majority.
        calls: What each rank called.
    """

    group: str
    seq: int
    aspect: str
    usual: tuple[int, ...]
    odd: tuple[int, ...]
    calls: Mapping[int, Call]

    def sides(self) -> list[tuple[tuple[int, ...], Call]]:
        """The ranks that called the same, with what they called; the most first."""
        field = next(name for name, aspect in _NAMES.items() if aspect == self.aspect)
        found = _classes({rank: _value(call, field) for rank, call in self.calls.items()})
        return [(ranks, self.calls[ranks[0]]) for ranks in found]


def sequences(calls: Mapping[int, Sequence[Call]]) -> dict[str, dict[int, dict[int, Call]]]:
    """The collectives of each group by rank and number."""
    found: dict[str, dict[int, dict[int, Call]]] = {}
    for rank, rows in calls.items():
        own: dict[str, dict[int, Call]] = {}
        for call in rows:
            if call.op not in POINT_TO_POINT:
                if call.group not in own:
                    own[call.group] = found.setdefault(call.group, {}).setdefault(rank, {})
                own[call.group][call.seq] = call
    return found


def first_mismatch(group: str, found: Sequences) -> Mismatch | None:
    """The oldest collective on record that two ranks do not agree on; None where all agree."""
    rows = {rank: calls for rank, calls in found.items() if calls}
    if len(rows) < 2:
        return None
    first = max(min(calls) for calls in rows.values())  # before it, rows of a rank are gone
    for seq in sorted({seq for calls in rows.values() for seq in calls if seq >= first}):
        here = {rank: calls[seq] for rank, calls in rows.items() if seq in calls}
        if len({*map(_ALL_ASPECTS, here.values())}) < 2:  # nearly always
            continue
        for field in _ASPECTS:
            mismatch = _differing(group, seq, field, here)
            if mismatch is not None:
                return mismatch
    return None


def _differing(group: str, seq: int, field: str, here: Mapping[int, Call]) -> Mismatch | None:
    """How the ranks differ in one field of a collective."""
    if field == "shapes" and not _are_even(list(here.values())):
        return None
    values = {rank: _value(call, field) for rank, call in here.items()}
    classes = _classes({rank: value for rank, value in values.items() if value is not None})
    if len(classes) < 2:
        return None
    has_majority = len(classes[0]) > len(classes[1])
    usual = classes[0] if has_majority else ()
    odd = sorted(rank for ranks in classes for rank in ranks if rank not in usual)
    return Mismatch(
        group=group,
        seq=seq,
        aspect=_NAMES[field],
        usual=usual,
        odd=tuple(odd),
        calls={rank: here[rank] for ranks in classes for rank in ranks},
    )


def _are_even(calls: Sequence[Call]) -> bool:
    """Whether all ranks must bring as many elements to this collective."""
    is_unfinished = any(call.is_open or call.error is not None for call in calls)
    even = _EVEN_OPS | _MOSTLY_EVEN_OPS if is_unfinished else _EVEN_OPS
    return all(call.op in even for call in calls)


def _classes(values: Mapping[int, object]) -> list[tuple[int, ...]]:
    """Ranks with the same value, the largest set first, then by the lowest rank."""
    found: dict[object, list[int]] = {}
    for rank in sorted(values):
        found.setdefault(values[rank], []).append(rank)
    return sorted((tuple(ranks) for ranks in found.values()), key=lambda r: (-len(r), r[0]))


def _value(call: Call, field: str) -> object:
    """What is compared; of shapes the numbers of elements, as backends know no more of them."""
    if field == "shapes":
        return None if call.shapes is None else tuple(map(_elements, call.shapes.split(";")))
    value: object = getattr(call, field)
    return value


def _elements(shape: str) -> int | None:
    """How many elements a shape such as ``[64,128]`` has; None of the dots behind the eighth."""
    return math.prod(map(int, _NUMBER.findall(shape))) if shape.startswith("[") else None
