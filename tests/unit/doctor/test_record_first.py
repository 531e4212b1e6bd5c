"""What a process that answers slowly takes nothing away from: what its record shows.

A slow process is one whose answer to one question comes when the test lets it. The test waits until
that question is asked, and then takes what has been judged: so it is when the time is up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.cluster.job.membership import member_of
from probing.diagnosis.doctor import examine
from probing.diagnosis.doctor.facts import Facts
from probing.diagnosis.doctor.findings import Rule, Sign
from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.rules import RULES
from probing.diagnosis.doctor.scope import Clock
from probing.diagnosis.doctor.turns import judging
from probing.diagnosis.hang.evidence import Verdict
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.tables import STEPS
from tests.harness.cards import card_of
from tests.harness.name_lists import encode_names
from tests.harness.ring_writer import RingWriter
from tests.harness.targets import DEADLINE_S

from .made import facts, steps

pytestmark = pytest.mark.anypython

_LATE = "no time was left: the look may take 12 s"
_NAN = {"loss": lambda s: 1.0 if s < 40 else math.nan, "loss_finite": lambda s: s < 40}
_ENVIRONMENT = [
    {"name": "num_threads", "value": "32"},
    {"name": "cpus", "value": "2"},
]


@contextlib.contextmanager
def _slow(of: Facts, name: str) -> Iterator[threading.Event]:
    """A process that takes its time to answer one question; gives when that is asked."""
    process: Any = of.process
    asked, go_on, answer = threading.Event(), threading.Event(), getattr(process, name)

    def slowly(*arguments: Any, **options: Any) -> object:
        asked.set()
        assert go_on.wait(DEADLINE_S)
        return answer(*arguments, **options)

    setattr(process, name, slowly)
    try:
        yield asked
    finally:
        go_on.set()


def _judged_until(of: Facts, name: str) -> tuple[judging.Judged, list[str]]:
    """What is judged when it waits for that, and what else the process was asked before."""
    judged = judging.Judged(of.member, of, [], {})
    process: Any = of.process
    with _slow(of, name) as asked:
        thread = threading.Thread(target=judging.judge, args=(judged,))
        thread.start()
        assert asked.wait(DEADLINE_S)
        before = list(process.asked)
        known = judging.as_it_is(judged, _LATE)
    thread.join(DEADLINE_S)
    return known, before


@pytest.mark.parametrize("name", ["live", "arm"])
def test_a_loss_that_is_not_finite_is_told_while_the_process_is_slow_to_answer(name: str) -> None:
    """Which module makes it is asked of the process; that it is on record waits for no answer."""
    of = facts({"steps": steps(60, **_NAN)}, {"environment": _ENVIRONMENT})
    known, _ = _judged_until(of, name)
    found = {rule.name: sign for rule, sign in known.found}
    assert found["loss-not-finite"].certainty == "certain"
    assert found["loss-not-finite"].since_step == 40
    assert "loss-not-finite" not in known.missed


def test_what_waited_for_an_answer_is_not_called_healthy() -> None:
    """A rule whose question was not asked in time is told as not looked at, with the reason."""
    of = facts({"steps": steps(60)}, {"environment": _ENVIRONMENT})
    known, _ = _judged_until(of, "live")
    assert known.missed["too-many-threads"] == known.missed["never-a-gradient"] == _LATE
    findings = examine._merged([known], "1", of=1)
    healthy = examine._healthy(findings, examine._missed([known.missed]))
    assert not {"set-up", "parameters", "gradients"} & set(healthy)
    assert "learning rate" not in known.missed


def test_where_the_record_is_slow_the_gravest_are_judged_by_what_is_known() -> None:
    """How it ended is known before any statement has come back, and is told without its step."""
    crashed = Verdict(
        kind="ended", is_hang=False, has_ended=True, outcome="crashed", headline="It died."
    )
    of = facts({"steps": steps(60)}, verdict=crashed, is_alive=False)
    known, _ = _judged_until(of, "query")
    assert [(rule.name, sign.since_step) for rule, sign in known.found] == [("ended", None)]
    assert "loss-not-finite" in known.missed
    assert set(known.missed.values()) >= {_LATE}


def test_the_steps_alone_tell_some() -> None:
    """What needs nothing else is judged though the statement behind them does not come back."""
    of = facts({"steps": steps(60)}, {"environment": _ENVIRONMENT})
    assert len(of.steps) == 60
    known, before = _judged_until(of, "query")
    judged = {rule.name for rule in RULES} - set(known.missed)
    assert {"hang", "ended"} < judged
    assert before == []
    late = judging.as_it_is(judging.Judged(of.member, of, [], {}), _LATE, end_s=0.0)
    assert {rule.name for rule in RULES if rule.gravity < 88} <= set(late.missed), "time is up"
    assert "hang" not in late.missed


def test_where_no_statement_comes_back_the_file_of_the_record_tells_the_steps(
    tmp_path: Path,
) -> None:
    """Of its newest steps, and since when the loss is not finite."""
    ring = RingWriter(STEPS, capacity=64)
    for step in range(1, 41):
        bad = {"loss": math.nan, "loss_finite": 0, "not_finite_since": 36} if step > 35 else {}
        ring.write(step=step, start_ns=step * 10**8, duration_ns=10**8, **{
            "loss": 1.0, "loss_finite": 1, "lr": 0.5, "optimizer": 1, **bad,
        })  # fmt: skip
    ring.open(step=41, start_ns=41 * 10**8)
    ring.save(tmp_path / "steps.ring")
    folder = ProcessFolder(path=tmp_path, pid=2**22 + 1, start_time=1)
    folder.names.write_bytes(encode_names(("SGD",)))
    of = facts({})
    of.process.folder = folder  # type: ignore[misc]
    known, before = _judged_until(of, "query")
    found = {rule.name: sign for rule, sign in known.found}
    assert found["loss-not-finite"].since_step == 36
    assert before == []
    again = facts({})
    again.process.folder, again.is_closed = folder, True  # type: ignore[misc]
    seen = again.steps
    assert (seen.numbers, seen.open is not None) == ([*range(1, 41)], True)
    assert {row["optimizer"] for row in seen.rows} == {"SGD"}
    assert seen.median_s == pytest.approx(0.1)
    assert not seen.rows[-1]["failed"]


def test_something_is_judged_however_little_time_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How it ended, with a loss that was NaN, though no thread has come to ask for it."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    folder = RunDirectory(tmp_path).create_folder(2**22 + 1, 5)
    ring = RingWriter(STEPS, capacity=8)
    ring.write(step=1, start_ns=100, duration_ns=100, loss=1.0, loss_finite=1)
    ring.write(
        step=2, start_ns=200, duration_ns=100, loss=math.nan, loss_finite=0, not_finite_since=2
    )
    ring.save(folder.ring("steps"))
    card = card_of(folder.pid, folder.start_time)
    folder.write_card(card)
    member = member_of(card, str(folder.path), is_alive=False)
    report = examine.examine([member], token=None, asked="1", within_s=0.001)
    assert [(one.rule, one.since_step) for one in report.findings] == [("ended-quietly", 2)]
    assert report.was_late
    assert not report.is_blind


def test_what_costs_little_is_asked_first() -> None:
    """That there are too many threads is found before a step is waited for."""
    of = facts({"steps": steps(60, **_NAN)}, {"environment": _ENVIRONMENT})
    known, before = _judged_until(of, "arm")
    found = [rule.name for rule, _ in known.found]
    assert {"too-many-threads", "loss-not-finite"} <= set(found)
    assert before[0] == "environment"
    assert {"parameters", "warnings"} <= set(before), "tables come before a watch of a step"


def test_what_the_process_adds_to_a_finding_is_told_once() -> None:
    """A rule that is judged twice tells what it knows at last, not that and what it knew before."""
    of = facts({"steps": steps(60, **_NAN)})
    judged = judging.Judged(of.member, of, [], {})
    judging.judge(judged)
    names = [rule.name for rule, _ in judged.found]
    assert names.count("loss-not-finite") == 1
    assert len(names) == len(set(names))
    assert judged.done == {rule.name for rule in RULES}


def test_each_rule_comes_to_the_same_whether_it_is_judged_twice_or_once() -> None:
    """Keeping questions back for a while changes nothing where there is time for all of them."""
    record = {"steps": steps(60, **_NAN)}
    quick = [rule for rule in RULES if not rule.cost_s]
    once = {r.name: judging.run(functools.partial(r.look, facts(record))) for r in quick}
    of = facts(record)
    judged = judging.Judged(of.member, of, [], {})
    judging.judge(judged)
    for name, (found, _) in once.items():
        assert [s for rule, s in judged.found if rule.name == name] == found


def _rule(name: str, look: Any, *, cost_s: float = 0.0) -> Rule:
    return dataclasses.replace(RULES[0], name=name, look=look, cost_s=cost_s, on_record=None)


def test_the_time_for_questions_is_what_the_record_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record that takes long to read leaves a moment for what is asked, by the same clock."""
    left: list[float] = []

    class Late(Clock):
        def left_s(self, until: float) -> float:
            left.append(until)
            return 0.0 if len(left) == 1 else DEADLINE_S

    def ask(of: Facts) -> Iterable[Sign]:
        of.live("parameters")
        return ()

    monkeypatch.setattr(judging, "RULES", (_rule("asks", ask),))
    of = facts({}, live_s=0.0)
    judged = judging.Judged(of.member, of, [], {})
    judging.judge(judged, clock=Late(20.0))
    assert judged.missed["asks"].startswith("no time was left")
    judged = judging.Judged(of.member, facts({}, live_s=0.0), [], {})
    judging.judge(judged, clock=Late(20.0))
    assert judged.missed == {}


def test_the_gravest_rules_are_judged_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a record is slow to answer, there may be time for some of them only."""
    judged: list[str] = []

    def named(name: str, gravity: int) -> Rule:
        def look(_: Facts) -> Iterable[Sign]:
            judged.append(name)
            return ()

        return dataclasses.replace(_rule(name, look), gravity=gravity)

    rules = (named("slow", 40), named("ended", 98), named("slow too", 40), named("nan", 95))
    monkeypatch.setattr(judging, "RULES", rules)
    of = facts({})
    judging.judge(judging.Judged(of.member, of, [], {}))
    assert judged == ["ended", "nan", "slow", "slow too"]


def test_a_plugins_rule_that_takes_time_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes time by itself, and asks us nothing, cannot be kept back."""
    runs: list[bool] = []

    def look(of: Facts) -> Iterable[Sign]:
        runs.append(bool(of.live_time._held))
        return ()

    monkeypatch.setattr(judging, "RULES", ())
    monkeypatch.setattr(judging, "plugin_rules", lambda _: (_rule("own", look, cost_s=2.0),))
    of = facts({})
    judging.judge(judging.Judged(of.member, of, [], {}))
    assert runs == [False]


def test_what_is_refused_for_now_is_asked_later() -> None:
    """A question that was kept back is no question that failed."""
    of = facts({}, {"parameters": []})
    of.live_time.hold(_LATE)
    with pytest.raises(NotLookedAt, match="no time was left"):
        of.live("parameters")
    assert of.live_time.wanted == "live parameters"
    of.live_time.begin(DEADLINE_S)
    assert of.live("parameters") == []
