"""Which part of a model has begun to be trained as steps began to take longer: one was unfrozen.

Rules of this file: looks at the parameters once, waits for no step, and is no rule itself. torch
counts how often each was changed, and an optimizer changes it some times in each step: from that it
follows in how many of the newest steps it was trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...facts import Facts, Row
from ...not_looked_at import NotLookedAt
from ..later import last_step
from ..numbers.gradients import listed

_MOST_TIMES = 3
"""So often optimizers change a parameter in a step: AdamW twice, to decay it and to move it."""
_NEAR, _NEAR_PART = 10, 0.02
"""So many steps off, or such a part of them all, is the same: a scaler may have left some out."""
_MEANT = "Nothing, if that part was to be trained from then on: each step has more to do."


class _Look(NamedTuple):
    """The parameters, and the last steps before and after they were looked at."""

    rows: Sequence[Row]
    first: int
    last: int

    def began(self, version: int) -> list[tuple[float, float]]:
        """Between which steps one has begun to be changed, by how often it may be in each.

        No more often than the one that was changed most.
        """
        most = max((row["version"] or 0) for row in self.rows) / max(1, self.last)
        times = range(1, min(_MOST_TIMES, max(1, round(most))) + 1)
        return [(self.first - version / each, self.last - version / each) for each in times]


def unfrozen_part(facts: Facts, since: int) -> tuple[str, str]:
    """That parameters have begun to be trained in a step, and what to do; empty where none have."""
    try:
        look = facts.ask("parameters by now", lambda: _look(facts))
    except NotLookedAt:
        return "", ""
    found = [row["parameter"] for row in look.rows if _has_begun(look, row, since)]
    if not found:
        return "", ""
    return f"{len(found)} parameters began to be trained then: {listed(found)}", _MEANT


def _look(facts: Facts) -> _Look:
    first = last_step(facts)
    rows = facts.process.live("parameters", wait_s=None).dicts()
    return _Look(rows, first, last_step(facts))


def _has_begun(look: _Look, row: Row, since: int) -> bool:
    """Whether a parameter was changed in all steps since one, and not in all steps there were."""
    version = row["version"]
    if not version or not row["trainable"] or not row["optimizers"]:
        return False
    near = max(_NEAR, _NEAR_PART * look.last)
    begun = look.began(version)
    if any(first - near <= 0 <= last + near for first, last in begun):
        return False
    return any(first - near <= since <= last + near for first, last in begun)
