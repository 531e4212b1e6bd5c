"""Whether the machine, rather than the program, may be what makes steps longer.

Rules of this file: pure functions of steps, and no rules themselves. Neither the clock of a
processor nor who shares its caches is on record; both change all that is computed by one factor,
and often for some seconds only.
"""

from __future__ import annotations

from ...facts import Steps

LASTING_S = 3.0
"""Seconds of steps on both sides of a change, or under growth, from which it is no burst."""
_MODEL, _UPDATES = ("forward", "backward", "loss"), ("gradients", "optimizer")
_LEAST_SHARE = 0.03
"""What takes less of a step says nothing."""
_ALIKE = 0.5
"""All is longer alike where what grew least grew by this part of what grew most."""


def is_lasting(*parts: Steps) -> bool:
    """Whether each of these parts of a training is longer than a burst of others' work."""
    return all(part.total_s >= LASTING_S for part in parts)


def words_of_all_alike(before: Steps, after: Steps) -> str:
    """That the model and the updates of its weights take longer by one factor; empty if not.

    A program that does more does so in one of them: who changes a model leaves its optimizer.
    """
    grown = [
        new / old - 1
        for phases in (_MODEL, _UPDATES)
        for old, new in [tuple(_per_step(part, phases) for part in (before, after))]
        if old >= _LEAST_SHARE * before.total_s / len(before)
    ]
    if len(grown) < 2 or min(grown) <= 0 or min(grown) < _ALIKE * max(grown):
        return ""
    return "all that it computes takes longer alike, as on a processor that is slower"


def _per_step(steps: Steps, phases: tuple[str, ...]) -> float:
    return sum(steps.seconds(phase) for phase in phases) / len(steps)
