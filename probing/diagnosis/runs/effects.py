"""What came of it: an effect, what may explain it, and how much of one it takes to be told.

Rules of this file: records, and what all effects share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ...messages.frozen import dataclass
from ..doctor.findings import Certainty
from .reach import Reach
from .setup import Difference

Kind = Literal["speed", "memory", "loss", "not_finite"]

MOST_TOLD = 4
"""Causes that are told with an effect, the first in its sentence."""
_MOST_LIKELY = 2
"""So many are told in the sentence where each may do anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of both runs.

    Attributes:
        name: A phase of a step, a module with its stage, a kind of memory.
        unit: ``s`` or ``bytes``; empty for a number without one.
        low_ratio: What the second by the first is at least; None where that is not known.
        is_different: Whether more than chance differs, and something is told of it.
        depth: Of a module, in how many others it is called.
    """

    name: str
    unit: str
    before: float
    after: float
    low_ratio: float | None = None
    high_ratio: float | None = None
    is_different: bool | None = None
    depth: int = 0

    @property
    def ratio(self) -> float | None:
        """The second by the first; None where there is none."""
        return self.after / self.before if self.before else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something that is not the same in both runs, beyond chance.

    Attributes:
        is_worse: Whether it is the second run that is worse off.
        summary: One sentence, without its causes.
        causes: What differs that can explain it, the likeliest first.
        weight: From 0 to 1: how much of the time or memory it is about.
    """

    kind: Kind
    is_worse: bool
    certainty: Certainty
    summary: str
    evidence: tuple[str, ...]
    causes: tuple[Difference, ...] = ()
    weight: float = 0.0
    since_step: int | None = None


def causes_of(
    differences: Sequence[Difference], can_explain: Callable[[Reach], bool]
) -> tuple[Difference, ...]:
    """What can explain an effect, the likeliest first."""
    found = [one for one in differences if one.reach.strength and can_explain(one.reach)]
    return tuple(sorted(found, key=lambda one: -one.reach.strength))


def explained(summary: str, causes: Sequence[Difference]) -> str:
    """A sentence with the likeliest of its causes."""
    if not causes:
        return f"{summary}; nothing that is on record of their set-up explains it"
    words = [one.words for one in causes[: _in_sentence(causes)]]
    return f"{summary}: {'perhaps ' if len(words) > 1 else ''}{', or '.join(words)}"


def cause_words(causes: Sequence[Difference]) -> tuple[str, ...]:
    """The other causes in words."""
    more = causes[_in_sentence(causes) : MOST_TOLD]
    return (f"it may also be that {'; '.join(one.words for one in more)}",) if more else ()


def _in_sentence(causes: Sequence[Difference]) -> int:
    """How many causes are told in the sentence: more than one where none is likelier."""
    if causes and causes[0].is_script:  # whatever else it does, it is also another script
        return min(len(causes), _MOST_LIKELY)
    alike = sum(one.reach.strength == causes[0].reach.strength for one in causes) if causes else 0
    return min(alike, _MOST_LIKELY) if alike and causes[0].reach.strength == 1 else min(1, alike)
