"""The module in which most of what steps have grown by is.

Rules of this file: asks the record of module calls, and is no rule itself.
"""

from __future__ import annotations

from typing import NamedTuple

from .....units import duration
from ....phase_words import PHASE_WORDS
from ...facts import Facts, Steps

_OF_GROWTH, _ALONE = 0.6, 1.5
_OF_MODULES = (
    "SELECT model, module, class, max(depth) AS depth, step >= {since} AS is_new,"
    " count(DISTINCT step) AS steps, sum(duration) AS total FROM python.torch_trace"
    " WHERE stage = 'forward' AND duration IS NOT NULL AND training"
    " AND (step BETWEEN {first} AND {end} OR step BETWEEN {since} AND {last}) GROUP BY ALL"
)


class Grown(NamedTuple):
    """A module whose forward passes take longer than they did."""

    name: str
    before_s: float
    after_s: float

    @property
    def sentence(self) -> str:
        """By how much, in words."""
        took = f"{duration(self.before_s)} before, {duration(self.after_s)} since"
        return f"the forward passes of {self.name} take {took} in each step"


def where_most(phase: str, module: Grown | None) -> str:
    """In which phase most of a growth is, and of which module that is."""
    words = f", most of it in {PHASE_WORDS[phase]}"
    if module is None:
        return words
    return f"{words} of {module.name}" if phase == "forward" else f", most of it in {module.name}"


def grown_module(facts: Facts, before: Steps, after: Steps) -> Grown | None:
    """The innermost module in which most of what the forward pass has grown by is; None if none.

    What is nested deeper explains more. Of modules below the root only: that it is the model says
    nothing.
    """
    place = {"first": before.numbers[0], "since": after.numbers[0], "last": after.numbers[-1]}
    times: dict[tuple[str, str], dict[bool, float]] = {}
    named: dict[tuple[str, str], tuple[int, str]] = {}
    for row in facts.rows(_OF_MODULES.format(end=before.numbers[-1], **place)):
        key = (row["model"], row["module"])
        times.setdefault(key, {})[row["is_new"]] = row["total"] / row["steps"]
        named[key] = (row["depth"], f"{row['module']} ({row['class']})")
    grown = {key: each[True] - each[False] for key, each in times.items() if len(each) == 2}
    whole = sum(by for key, by in grown.items() if named[key][0] == 0)
    old, new = (
        sum(each.get(new, 0.0) for key, each in times.items() if named[key][0] == 0)
        for new in (False, True)
    )
    most = [
        key
        for key, by in grown.items()
        if named[key][0] > 0
        and by >= _OF_GROWTH * whole > 0
        and _grew_alone(times[key][False], times[key][True], old, new)
    ]
    if not most:
        return None
    found = max(most, key=lambda key: (named[key][0], grown[key]))
    return Grown(named[found][1], times[found][False], times[found][True])


def _grew_alone(own_old: float, own_new: float, old: float, new: float) -> bool:
    """Whether a module has grown by far more than the rest of the model: else all got slower."""
    rest = (new - own_new) / (old - own_old) if old > own_old else 1.0
    return own_new >= _ALONE * max(1.0, rest) * own_old
