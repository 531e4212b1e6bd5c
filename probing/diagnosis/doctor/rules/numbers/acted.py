"""What `act` has changed in a training, by python.actions: nobody else is blamed for that.

Rules of this file: pure functions of `Facts`. What was refused has changed nothing, and what was
undone is no fault of the training any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from .....units import age
from ...facts import Facts
from ...findings import Sign
from ...not_looked_at import NotLookedAt

ACTS = (
    "SELECT a.action_id, a.name, a.arguments, a.step, a.uid, a.pid, a.address,"
    " a.state IN ('undone', 'overwritten') AS is_undone, u.name AS undoes,"
    " (epoch_ns(now()) - a.start_ns) / 1e9 AS age_s"
    " FROM python.actions a LEFT JOIN python.actions u ON u.action_id = a.undoes"
    " WHERE a.step IS NOT NULL"
    " AND coalesce(a.state, '') NOT IN ('refused', 'timed out', 'failed') ORDER BY a.seq"
)
"""Those that have come to their step."""
_RATE, _UNDO = "lr", "undo"
_NEAR = 1
"""A rate shows in the row of the step that it was set before, or of the one that was ending."""


class Acted(NamedTuple):
    """An action that has changed something.

    Attributes:
        number: Its ``action_id``.
        name: What the command calls it; of an undo, what it has taken back.
        words: It with its arguments, in words.
        is_undone: Whether nothing is left of it: it was undone since, or is an undo itself.
    """

    number: int
    name: str
    words: str
    step: int
    age_s: float
    who: str
    is_undone: bool

    @property
    def evidence(self) -> str:
        """What it was and when, as a line of evidence."""
        return (
            f"{self.words} was applied before step {self.step}, {age(self.age_s)} ago, by"
            f" {self.who}: action {self.number}"
        )

    def fix(self, facts: Facts) -> str:
        """What to do about what it has changed."""
        if not facts.is_alive:
            return "Nothing, if it was meant so: it was no part of the script."
        return f"Nothing, if it is meant so; `probing PID act undo {self.number}` takes it back."


def rate_act(facts: Facts, step: int) -> Acted | None:
    """The newest action that has changed the learning rate at a step; None where none has."""
    found = [one for one in _acts(facts) if one.name == _RATE and abs(one.step - step) <= _NEAR]
    return found[-1] if found else None


def with_acts(facts: Facts, signs: Iterable[Sign]) -> list[Sign]:
    """Signs, with the actions in evidence that were applied where they began."""
    told = []
    for sign in signs:
        since = sign.since_step
        near = [] if since is None else [a for a in _acts(facts) if abs(a.step - since) <= _NEAR]
        lines = tuple(one.evidence for one in near if one.evidence not in sign.evidence)
        told.append(replace(sign, evidence=(*lines, *sign.evidence)) if lines else sign)
    return told


def _acts(facts: Facts) -> list[Acted]:
    """All on record, the oldest first; none where that cannot be read."""
    try:
        rows = facts.rows(ACTS)
    except NotLookedAt:
        return []
    return [
        Acted(
            number=row["action_id"],
            name=row["undoes"] or row["name"],
            words=_words(row),
            step=row["step"],
            age_s=row["age_s"],
            who=row["address"] or f"process {row['pid']} of user {row['uid']}",
            is_undone=row["is_undone"] or row["name"] == _UNDO,
        )
        for row in rows
    ]


def _words(row: Mapping[str, Any]) -> str:
    """An action as it was asked for."""
    if row["name"] == _UNDO:
        return f"`act {_UNDO}` of `act {row['undoes']}`"
    arguments = f" ({row['arguments']})" if row["arguments"] else ""
    return f"`act {row['name']}`{arguments}"
