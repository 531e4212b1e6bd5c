"""What the overview finds by the record alone, and what it says where there is no time for all."""

from __future__ import annotations

import math
from typing import Any

import pytest

from probing.cli.reports.cheap_findings import Found, find_cheaply
from probing.diagnosis.doctor.findings import ABOUT_NOW
from probing.diagnosis.doctor.not_looked_at import ENDED
from probing.diagnosis.doctor.report import NotLooked, Report
from probing.diagnosis.doctor.rules import RULES
from tests.harness.cards import card_of
from tests.harness.targets import DEADLINE_S

from .made import facts, steps

pytestmark = pytest.mark.anypython

_BY_RECORD = [rule for rule in RULES if not rule.cost_s and rule.group not in ABOUT_NOW]


def found(within_s: float, *, is_alive: bool, **columns: Any) -> Found:
    """What is found in a record of sixty steps."""
    process: Any = facts({"steps": steps(60, **columns)}, is_here=True).process
    process.label, process.folder.is_alive = "1", lambda: is_alive
    return find_cheaply(process, card_of(1, 1), within_s=within_s)


@pytest.mark.parametrize("is_alive", [True, False])
def test_only_rules_that_go_by_the_record_are_counted(*, is_alive: bool) -> None:
    """Those that need what a process tells that runs are no part of what there was no time for."""
    whole, nothing = (found(s, is_alive=is_alive) for s in (DEADLINE_S, -1.0))
    assert (whole.late, whole.late_subjects) == (0, ())
    assert whole.judged > 10
    assert nothing.statements == ()
    assert nothing.judged < whole.judged <= nothing.judged + nothing.late < len(_BY_RECORD)
    assert "loss" in nothing.late_subjects
    assert len(set(nothing.late_subjects)) == len(nothing.late_subjects)


def test_the_gravest_are_looked_at_first() -> None:
    """By the one statement that was begun in time a loss is told that is not finite."""
    bad = {"loss": lambda s: 1.0 if s < 40 else math.nan, "loss_finite": lambda s: s < 40}
    assert "loss-not-finite" in {
        one.rule for one in found(DEADLINE_S, is_alive=False, **bad).findings
    }
    gravities = {rule.subject: rule.gravity for rule in reversed(_BY_RECORD)}
    late = found(-1.0, is_alive=False).late_subjects
    assert gravities[late[0]] >= gravities[late[-1]]


def test_a_process_that_has_ended_is_not_reproached_with_rules_for_one_that_runs() -> None:
    """Of how many rules could look, only those count that might have."""
    live, late = (tuple(rule.name for rule in RULES[at : at + 3]) for at in (0, 3))
    missed = (
        NotLooked(rules=live, why=f"{ENDED}, and only its record can be asked"),
        NotLooked(rules=late, why="no step is on record"),
    )
    report = Report(findings=(), healthy=(), not_looked_at=missed, about="1", steps=9, seconds=1.0)
    assert report.looked == (len(RULES) - 6, len(RULES) - 3)
