"""What a watch does not judge is told as that, once, and never taken for healthy."""

from __future__ import annotations

import dataclasses

import pytest

from probing.cli.watch.watching import Wish, watch_and_tell
from probing.diagnosis.doctor.not_looked_at import LATE, NOT_THOROUGH
from probing.diagnosis.doctor.report import NotLooked, Report
from probing.diagnosis.doctor.rules import RULES
from probing.diagnosis.doctor.turns.judging import Judged, judge
from probing.diagnosis.doctor.watching import left_to_one_look

from .made import facts, steps

pytestmark = pytest.mark.anypython

_WISH = Wish(
    every_s=0.01, least="likely", goes_on=False, is_json=False, webhooks=(), variables=(),
    commands=(),
)  # fmt: skip


def report(*names: str, why: str = NOT_THOROUGH) -> Report:
    """A report in which these rules were not judged."""
    missed = (NotLooked(rules=names, why=why),) if names else ()
    return Report(findings=(), healthy=(), not_looked_at=missed, about="process 1", steps=9,
                  seconds=0.1)  # fmt: skip


def told(capsys: pytest.CaptureFixture[str], *reports: Report) -> list[str]:
    """What a watch that makes these reports says of what it has not looked at."""
    coming = [*reports, dataclasses.replace(report(), has_ended=True)]
    assert not watch_and_tell(lambda _: coming.pop(0), _WISH)
    said = " ".join(capsys.readouterr().err.split())
    return [part for part in said.split("note: ") if part.startswith("not looked at")]


def test_every_rule_that_takes_time_is_left_out_and_named() -> None:
    """One that says nothing of a record that is there for it is not among them."""
    of = facts({"steps": steps(200)})
    judged = Judged(of.member, of, [], {})
    judge(judged, is_thorough=False)
    costly = {rule.name for rule in RULES if rule.cost_s and rule.on_record is None}
    assert {name for name, why in judged.missed.items() if why == NOT_THOROUGH} == costly
    assert "zero-gradients" in costly
    assert "memory-grows" not in costly


def test_a_watch_says_at_first_what_it_does_not_judge(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, however many looks there are; what is left out later on is told then."""
    first = report("own-code", "no-update")
    lines = told(capsys, first, first, report("own-code", "no-update", "a-plugins-rule"))
    assert lines[0].startswith(f"not looked at: own-code, no-update ({NOT_THOROUGH})")
    assert lines[1].startswith(f"not looked at: a-plugins-rule ({NOT_THOROUGH})")
    assert len(lines) == 2


@pytest.mark.parametrize(
    "healthy",
    [
        report(),
        report("small-batches", why="only 7 steps after the first 3 on record, and 50 are needed"),
        report("tf32-off", why="no accelerator is in use"),
        report("own-code", why=f"{LATE} 8 s"),
        report("hang", why="the process has ended"),
    ],
)
def test_a_watch_does_not_tell_what_is_only_so_now(
    healthy: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    """That there are too few steps yet changes by itself, and would be told again and again."""
    assert left_to_one_look(healthy) == ()
    assert told(capsys, healthy, healthy) == []
