"""What is wrong with the load of a machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from probing.rules import NotLookedAt, Rule, Sign

_TIMES = 2.0
"""A machine that has this much more to do than processors delays each of its processes."""
_LEAST = 5


class Rows(Protocol):
    """What a rule needs of `probing.rules.Facts`, so that a test can stand in for it."""

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a statement over the tables of the process."""


def look(facts: Rows) -> Iterator[Sign]:
    """Find a machine that has far more to do than it can."""
    found = facts.rows("SELECT load, processors FROM machine_load ORDER BY seq DESC LIMIT 5")
    if len(found) < _LEAST:
        raise NotLookedAt(f"only {len(found)} steps have their load on record")
    times = min(row["load"] / row["processors"] for row in found)
    if times > _TIMES:
        yield Sign(
            certainty="possible",
            summary=f"the machine has {times:.1f} times as much to do as it has processors",
            evidence=(f"the load of the last {_LEAST} steps was never lower",),
            weight=min(1.0, times / 10),
        )


OVERLOADED = Rule(
    name="machine-overloaded",
    group="slow",
    subject="machine load",
    symptom="Steps are slow, and all of them.",
    evidence=f"The load average is over {_TIMES:g} times the processors in {_LEAST} steps.",
    certainty="possible",
    gravity=30,
    fix="Find out what else runs there, and move it.",
    next="probing ENDPOINT query @load",
    look=look,
)
