"""What the doctor makes of what its rules find: the order, what is healthy, what is not known."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probing.cli.questions.library import BY_NAME
from probing.cli.render.process.doctor import render_report
from probing.diagnosis.doctor import effects, examine, scope
from probing.diagnosis.doctor.facts import LEAST_STEPS, Facts
from probing.diagnosis.doctor.findings import (
    _OF_THE_RECORD,
    Certainty,
    Finding,
    Rule,
    Sign,
    finding_of,
)
from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.ranks.job_rules import JobRule
from probing.diagnosis.doctor.report import ALL_RULES, Report
from probing.diagnosis.doctor.rules import RULES, plugged
from probing.diagnosis.doctor.series import last_change
from probing.diagnosis.doctor.turns import judging
from probing.diagnosis.hang import diagnosis
from probing.diagnosis.hang.evidence import Cause, RankEvidence, Verdict
from probing.diagnosis.hang.judging import judge as verdict_of
from probing.diagnosis.hang.seen.own_ends import told_end
from probing.diagnosis.hang.words.texts import UNRECORDED
from probing.postmortem.endings import judge
from probing.rundir.folders import ProcessFolder
from probing.tables import STEPS
from tests.harness.ring_writer import RingWriter

from .made import FINE, facts, signs, steps

pytestmark = pytest.mark.anypython

HANG = Verdict(
    kind="process",
    is_hang=True,
    outcome="hang",
    headline="Process 1 waits for a lock that nobody lets go of.",
    causes=(Cause(rank=None, pid=1, host="here", what="waits", evidence=("in take (t.py:3)",)),),
    confidence="high: it is on record",
    next_steps=("Look at take.",),
)


@pytest.mark.parametrize("set_s", [-3600, 0, 3600])
def test_steps_are_left_out_by_the_clock_of_their_record(set_s: int, tmp_path: Path) -> None:
    """Whatever the machine's clock is set to after a training began, its newest steps count."""
    folder = ProcessFolder(path=tmp_path, pid=1, start_time=1)
    writer = RingWriter(STEPS, capacity=4, clock_offset_ns=time.time_ns() - set_s * 10**9)
    writer.save(folder.ring("steps"))
    rows = steps(10)
    began_ns = rows[-2]["start_ns"]
    made = facts({"steps": [
        {**row, "start_ns": row["start_ns"] + writer.clock_offset_ns} for row in rows
    ]})  # fmt: skip
    process: Any = made.process
    process.folder = folder
    made.leave_out_steps_since(began_ns)
    assert made.steps.numbers[-1] == 7


def test_a_hang_is_told_with_its_reasons_and_nothing_live_is_asked() -> None:
    """The verdict of `hang` is a finding; a training that hangs is not asked for its tensors."""
    of = facts({"steps": steps(20)}, verdict=HANG)
    (sign,) = signs("hang", of)
    assert (sign.certainty, sign.summary) == ("certain", HANG.headline)
    assert sign.evidence == ("in take (t.py:3)", "confidence high: it is on record")
    assert sign.fix == "Look at take."
    assert signs("stands-still", of) == []
    with pytest.raises(NotLookedAt, match="does not go on"):
        of.live("parameters")


@pytest.mark.parametrize(
    ("change", "rule", "certainty"),
    [
        ({"is_hang": False}, "hang", "possible"),
        ({"is_hang": False, "outcome": "slow"}, "stands-still", "certain"),
        ({"outcome": "crashed", "has_ended": True}, "ended", "certain"),
        (
            {"is_hang": False, "outcome": "fine", "kind": "process", "still_s": 6.0},
            "hang",
            "possible",
        ),
        ({"is_hang": True, "confidence": "low: unknown"}, "hang", "likely"),
    ],
)
def test_each_verdict_has_its_rule(change: dict[str, object], rule: str, certainty: str) -> None:
    """A hang that is not long enough yet is possible; what has ended is told as that."""
    verdict = dataclasses.replace(HANG, **change)  # type: ignore[arg-type]
    of = facts({"steps": steps(20)}, verdict=verdict)
    found = {name: signs(name, of) for name in ("hang", "stands-still", "ended")}
    assert {name for name, those in found.items() if those} == {rule}
    assert found[rule][0].certainty == certainty


@pytest.mark.parametrize(
    ("still_s", "columns", "saved_s", "certainty"),
    [
        (30.0, {}, None, "likely"),
        (30.0, {"start_ns": lambda s: 10**9 * (s + 18 * (s >= 15))}, None, "possible"),
        (39.0, {"start_ns": lambda s: 10**9 * (s + 18 * (s >= 15))}, None, "likely"),
        (30.0, {"start_ns": lambda s: 10**9 * (s + 18 * (s >= 2))}, None, "likely"),  # at its start
        (30.0, {}, 16.0, "possible"),
    ],
)
def test_a_pause_that_was_there_before_is_possible(
    still_s: float, columns: dict[str, Any], saved_s: float | None, certainty: str
) -> None:
    """A process at work between two steps may evaluate or save, as it did for as long before."""
    verdict = dataclasses.replace(
        HANG, is_hang=False, outcome="slow", still_s=still_s, confidence="medium: the kernel counts"
    )
    record = {"steps": steps(20, **columns), "checkpoints": [{"step": 9, "duration": saved_s}]}
    (sign,) = signs("stands-still", facts(record, verdict=verdict))
    assert sign.certainty == certainty
    assert ("is on record" in sign.evidence[0]) == (certainty == "possible")


def test_a_wait_without_any_step_is_possible() -> None:
    """Of a process that was attached to as it waited, that is told; not of one that computes."""
    waiting = Cause(rank=None, pid=1, host="here", what="is waiting for an event")
    verdict = dataclasses.replace(HANG, is_hang=False, outcome="fine", causes=(waiting,))
    (sign,) = signs("waits", facts({}, verdict=verdict))
    assert sign.certainty == "possible"
    computing = dataclasses.replace(waiting, what="runs Python code")
    assert (
        signs("waits", facts({}, verdict=dataclasses.replace(verdict, causes=(computing,)))) == []
    )
    assert signs("waits", facts({"steps": steps(9)}, verdict=verdict)) == []


def test_a_quiet_end_with_a_loss_that_was_not_finite_is_told() -> None:
    """An orderly end is no finding, unless the loss was NaN before it."""
    ended = dataclasses.replace(FINE, kind="ended", has_ended=True, ended_well=True)
    well = facts({"steps": steps(60)}, verdict=ended, is_alive=False)
    assert signs("ended-quietly", well) == signs("ended", well) == []
    made = steps(60, loss=lambda s: 1.0 if s < 40 else np.nan, loss_finite=lambda s: s < 40)
    (sign,) = signs("ended-quietly", facts({"steps": made}, verdict=ended, is_alive=False))
    assert (sign.certainty, sign.since_step) == ("likely", 40)
    made[3] |= {"loss": np.nan, "loss_finite": False}  # which was over the step after
    (sign,) = signs("ended-quietly", facts({"steps": made}, verdict=ended, is_alive=False))
    assert sign.since_step == 40


def test_what_nothing_tells_of_is_not_judged() -> None:
    """How a process ended that had no agent, how one is that was not seen, what is not recorded."""
    untold = dataclasses.replace(
        FINE, kind="ended", has_ended=True, ended_well=True,
        headline="Process 1 has ended: how it ended nothing tells: its agent was taken out of it.",
    )  # fmt: skip
    unseen = Verdict(kind="process", is_hang=False, headline="Process 1 could not be looked at.")
    paused = dataclasses.replace(HANG, is_hang=False, outcome="fine", confidence=UNRECORDED)
    for verdict, why in (
        (untold, {"ended": "nothing tells how it ended"}),
        (unseen, dict.fromkeys(("ended", "hang"), "it could not be looked at")),
        (paused, {"hang": "its recording is off"}),
    ):
        of = facts({"steps": steps(20)}, verdict=verdict)
        judged = judging.Judged(of.member, of, [], {})
        judging.judge(judged)
        missed = {n: judged.missed[n] for n in ("ended", "hang") if n in judged.missed}
        assert missed == why


def test_what_is_healthy_contradicts_no_finding() -> None:
    """Who is stopped or has crashed is not well, nor is what it crashed of."""

    def healthy(name: str, summary: str, unknown: tuple[str, ...] = ()) -> set[str]:
        rule = next(rule for rule in RULES if rule.name == name)
        sign = Sign(certainty="certain", summary=summary)
        return set(examine._healthy([finding_of(rule, sign, asked="1")], (), unknown))

    usual = {"process", "progress", "memory", "data", "learning rate"}
    assert usual & healthy("hang", "Process 1 is stopped by a signal.") == {
        "memory", "data", "learning rate",
    }  # fmt: skip
    assert usual & healthy("ended", "It ended with an unhandled torch.OutOfMemoryError") == {
        "data", "learning rate",
    }  # fmt: skip
    assert "data" not in healthy("hang", "It is in the DataLoader (waiting for a batch).")
    assert usual & healthy("rate-zero", "The learning rate is zero.") == usual - {"learning rate"}
    assert "ranks" not in healthy("rate-zero", "x", ("ranks",))


def test_an_ended_process_is_looked_at_where_something_answers(tmp_path: Path) -> None:
    """Its last steps where it left no stack; a line of evidence comes once."""
    line = "in step 39"
    causes = (dataclasses.replace(HANG.causes[0], evidence=(line, line)),) * 2
    crashed = dataclasses.replace(HANG, is_hang=False, has_ended=True, causes=causes)
    of = facts({"steps": steps(40)}, verdict=crashed, is_alive=False)
    (sign,) = signs("ended", of)
    assert (sign.next, sign.evidence) == ("", (line,))  # of another machine's it is not known
    folder = ProcessFolder(path=tmp_path, pid=1, start_time=1)
    of.process.folder = folder  # type: ignore[misc]
    (sign,) = signs("ended", of)
    assert sign.next.startswith('probing ENDPOINT query "SELECT step, loss FROM python.steps')
    of = facts({}, verdict=crashed, is_alive=False)
    of.process.folder = folder  # type: ignore[misc]
    (sign,) = signs("ended", of)
    assert sign.next == "probing ENDPOINT hang"


def test_an_end_that_is_only_likely_is_told_as_that() -> None:
    """A process that was killed beside a full cgroup may have been killed by anybody."""
    last = {"step": 1, "phase": "forward", "cgroup_bytes": 95, "cgroup_limit_bytes": 100}
    full = judge(7, [last], [], None)
    end = told_end(full, None)
    evidence = RankEvidence(
        rank=None, host="h", pid=7, endpoint="7", world_size=None, state="dead",
        ending=end.words, ended_ns=end.ended_ns, way=end.way,
    )  # fmt: skip
    assert evidence.way == "oom"
    of = facts({"steps": steps(9)}, verdict=verdict_of([evidence]), is_alive=False)
    (sign,) = signs("ended", of)
    assert sign.certainty == "likely"


def test_a_process_that_does_not_answer_is_asked_once() -> None:
    """After the first question that is not answered in time no other live table is asked for."""
    of = facts({}, is_silent=True)
    for table in ("parameters", "dataloaders", "parameters"):
        with pytest.raises(NotLookedAt):
            of.live(table)
    assert of.process.asked == ["parameters"]  # type: ignore[attr-defined]


def test_live_questions_end() -> None:
    """Once the looks have taken too long nothing live is asked any more, and that is said."""
    of = facts({"steps": steps(20)})
    late = Facts(of.process, of.member, FINE, live_s=0.0)
    time.sleep(0.001)
    with pytest.raises(NotLookedAt, match="no time was left"):
        late.live("parameters")
    assert len(late.steps) == 20


def test_few_steps_are_no_sign_of_health() -> None:
    """Of what a training computes nothing is called healthy before it has made some steps."""
    (missed,) = examine._too_early((), (), LEAST_STEPS - 1)
    assert {"loss-flat", "rate-zero", "data-wait"} <= set(missed.rules)
    assert "hang" not in missed.rules
    assert "only 7 steps on record, and 8 are needed" in missed.why
    healthy = examine._healthy((), (missed,))
    assert "progress" in healthy
    assert not {"loss", "learning rate", "data"} & set(healthy)
    assert examine._too_early((), (), LEAST_STEPS) == ()


def _rule(name: str, gravity: int, subject: str = "loss") -> Rule:
    return Rule(
        name=name, group="numbers", subject=subject, symptom="", evidence="", certainty="certain",
        gravity=gravity, fix="do", next="probing ENDPOINT query", look=lambda _: (),
    )  # fmt: skip


def test_the_gravest_comes_first_and_what_may_be_meant_last() -> None:
    """Certain and likely findings are ordered by gravity and weight, possible ones follow."""
    made = [
        finding_of(_rule("grave", 90), Sign(certainty="possible", summary=""), asked="1"),
        finding_of(_rule("light", 20), Sign(certainty="certain", summary=""), asked="1"),
        finding_of(_rule("heavy", 40), Sign(certainty="likely", summary="", weight=1), asked="1"),
        finding_of(_rule("middle", 45), Sign(certainty="likely", summary=""), asked="1"),
        finding_of(_rule("once", 90), Sign(certainty="likely", summary="", gravity=1), asked="1"),
    ]
    assert [f.rule for f in sorted(made, key=lambda f: f.order)] == [
        "heavy", "middle", "light", "once", "grave",
    ]  # fmt: skip
    assert made[0].next == "probing 1 query"
    assert made[0].fix == "do"


def test_of_an_ended_process_the_record_is_asked() -> None:
    """No command is advised that needs a process that runs."""
    sign = Sign(certainty="certain", summary="", next="probing ENDPOINT arm nan --steps 3")
    rule = _rule("grave", 90)
    alive = finding_of(rule, sign, asked="1", is_alive=True)
    assert alive.next == "probing 1 arm nan --steps 3"
    ended = finding_of(rule, sign, asked="1", is_alive=False)
    assert ended.next == "probing 1 query @not-finite"
    questions = {word[1:] for one in _OF_THE_RECORD.values() for word in one.split() if "@" in word}
    assert questions <= set(BY_NAME)


def test_what_is_advised_while_it_runs_is_not_advised_of_an_ended_process() -> None:
    """A command in an advice is as it is to be typed, and gone where it has no use any more."""
    sign = Sign(certainty="certain", summary="", fix="Find it; meanwhile `probing PID act lr`.")
    rule = _rule("grave", 90)
    alive = finding_of(rule, sign, asked="1", is_alive=True)
    assert alive.fix == "Find it; meanwhile `probing 1 act lr`."
    assert finding_of(rule, sign, asked="1", is_alive=False).fix == "Find it."


def test_a_rule_that_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a rule is told as not looked at, and its subject is not called healthy."""

    def fail(_: Facts) -> list[Sign]:
        raise KeyError("column")

    rules = (
        dataclasses.replace(_rule("broken", 1, "data"), look=fail),
        dataclasses.replace(
            _rule("works", 1, "speed"), look=lambda _: [Sign(certainty="certain", summary="slow")]
        ),
        _rule("silent", 1, "memory"),
    )
    monkeypatch.setattr(judging, "RULES", rules)
    of = facts({})
    judged = judging.Judged(of.member, of, [], {})
    judging.judge(judged)
    assert [rule.name for rule, _ in judged.found] == ["works"]
    assert judged.missed == {"broken": "internal error: KeyError: 'column'"}
    findings = examine._merged([judged], "1", of=1)
    missed = examine._missed([judged.missed])
    assert examine._healthy(findings, missed) == ("memory",)


def test_what_ranks_have_shown_counts_though_a_later_comparison_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that take time come last; when the time is up, only they are told as not looked at."""
    go_on = threading.Event()

    def wait(_: object) -> list[Sign]:
        go_on.wait()
        return []

    slow = dataclasses.replace(_rule("slow", 1), cost_s=3.0)
    quick = JobRule(
        rule=_rule("quick", 1), look=lambda _: [Sign(certainty="likely", summary="late")]
    )
    monkeypatch.setattr(examine, "JOB_RULES", (JobRule(rule=slow, look=wait), quick))
    of = facts({})
    ranks = [dataclasses.replace(of.member, rank=rank) for rank in (0, 1)]
    judged = [judging.Judged(member, of, [], {}) for member in ranks]
    group = scope.Group(ranks, FINE)
    how = scope.How(scope.Clock(0.4), None, "all", is_thorough=True)
    try:
        (finding,), missed = examine._compared(judged, group, how)
    finally:
        go_on.set()
    assert finding.rule == "quick"
    assert missed == {"slow": "no time was left: the look may take 0.4 s"}


@pytest.mark.parametrize("job", [None, "4711"])
def test_what_was_not_judged_is_known_of_each_process(job: str | None) -> None:
    """A watch must know of which process a rule could not be judged: of others it says nothing.

    Two scripts of one SLURM job are no ranks of each other, either.
    """
    of = facts({})
    members = [dataclasses.replace(of.member, pid=pid, job=job) for pid in (1, 2)]
    judged = [judging.Judged(members[0], of, [], {"tf32-off": "no accelerator is in use"})]
    how = scope.How(scope.Clock(9.0), None, "all", is_thorough=False)
    groups = [scope.Group([member], FINE) for member in members]
    late = [(members[1], {"data-wait": "too late"})]
    found, missed, by_whole = examine._of_groups(groups, judged, late, how)
    assert (found, len(missed)) == ([], 2)
    assert by_whole == {
        "process 1": frozenset({"tf32-off"}), "process 2": frozenset({"data-wait"})
    }  # fmt: skip


def test_the_surest_of_several_ranks_is_told() -> None:
    """A rule that is certain on one rank and possible on another is certain."""
    rule = _rule("slow", 10)
    signs_of = {0: Sign(certainty="possible", summary="maybe", weight=1.0),
                1: Sign(certainty="certain", summary="is", weight=0.1)}  # fmt: skip
    judged = [
        judging.Judged(dataclasses.replace(of.member, rank=rank), of, [(rule, sign)], {})
        for rank, sign in signs_of.items()
        for of in [facts({})]
    ]
    (finding,) = examine._merged(judged, "1", of=2)
    assert (finding.certainty, finding.summary) == ("certain", "Ranks 0-1: Is")


def test_what_only_starts_ranks_does_not_fill_the_page() -> None:
    """That it makes no steps is told once, and only beside others that do."""
    of_rank, of_launcher = facts({"steps": steps(40)}), facts({"steps": []})
    first = facts({"steps": [steps(1)[0] | {"duration": None}]})  # it may hang in its first step
    missed = {"data-wait": "only 0 steps"}
    rank, launcher, opening = (
        judging.Judged(dataclasses.replace(of.member, rank=number), of, [], dict(missed))
        for of, number in ((of_rank, 0), (of_launcher, None), (first, None))
    )
    assert [len(of.steps) for of in (of_rank, of_launcher, first)] == [40, 0, 0]  # they are read
    kept, notes = examine._without_launchers([rank, launcher, opening])
    assert [one.missed for one in kept] == [missed, {}, missed]
    assert notes == ("process 1 makes no steps: only rules that need none were judged there",)
    assert examine._without_launchers([launcher, opening]) == ([launcher, opening], ())


def test_what_follows_from_another_finding_is_not_told_twice() -> None:
    """Each cause that is named hides its effects only, and every name is one of a rule."""
    names = {rule.name for rule in ALL_RULES}
    for cause, known in effects._EXPLAINS.items():
        assert {cause, *known} <= names
        assert cause not in known
    made = [
        finding_of(rule, Sign(certainty="certain", summary=""), asked="1")
        for rule in ALL_RULES
        if rule.name in {"loss-not-finite", "loss-flat", "data-wait"}
    ]
    kept = {finding.rule for finding in effects.without_effects(made)}
    assert kept == {"loss-not-finite", "data-wait"}
    both = [
        finding_of(rule, Sign(certainty="possible", summary=""), asked="1")
        for rule in ALL_RULES
        if rule.name in {"loss-flat", "loss-spike"}  # a spike may come back to where it was
    ]
    assert effects.without_effects(both) == both


@pytest.mark.parametrize(
    ("cause", "effect", "is_told"),
    [
        (("no-backward", "possible", ""), ("data-wait", "certain", ""), True),
        (("no-backward", "likely", ""), ("data-wait", "certain", ""), False),
        (("rate-raised", "possible", ""), ("diverging", "likely", ""), True),
        (("loss-not-finite", "certain", "1"), ("zero-gradients", "likely", "0"), True),
        (("loss-not-finite", "certain", "01"), ("zero-gradients", "likely", "0"), False),
        (("checkpoints", "likely", "0"), ("straggler", "likely", ""), True),  # which is rank 3
        (("straggler", "likely", ""), ("collectives", "likely", "0"), False),
    ],
)
def test_only_what_is_sure_enough_hides_others_and_of_its_own_ranks(
    cause: tuple[str, Certainty, str], effect: tuple[str, Certainty, str], *, is_told: bool
) -> None:
    """A guess hides nothing that was measured, nor does a cause what another rank has."""
    rules = {rule.name: rule for rule in ALL_RULES}
    made = [
        dataclasses.replace(
            finding_of(rules[name], Sign(certainty=certainty, summary=""), asked="1"),
            members=frozenset(ranks),
        )
        for name, certainty, ranks in (cause, effect)
    ]
    assert (made[1] in effects.without_effects(made)) == is_told


@pytest.mark.parametrize(
    ("certainty", "ranks", "blamed", "order"),
    [
        ("likely", "0", "0", ["checkpoints", "straggler"]),
        ("likely", "01", "0", ["checkpoints", "straggler"]),
        ("likely", "1", "0", ["straggler", "checkpoints"]),  # of another rank
        ("likely", "0", "01", ["straggler", "checkpoints"]),  # the other does not save
        ("likely", "0", "", ["straggler", "checkpoints"]),
        ("possible", "0", "0", ["straggler", "checkpoints"]),
    ],
)
def test_what_a_rank_does_is_told_before_that_others_wait_for_it(
    certainty: Certainty, ranks: str, blamed: str, order: list[str]
) -> None:
    """Where the comparison names that as the cause, of all that it blames."""
    rules = {rule.name: rule for rule in ALL_RULES}
    waits = Sign(certainty="likely", summary="", weight=1.0, caused_by="checkpoints")
    saves = Sign(certainty=certainty, summary="")
    made = [
        dataclasses.replace(
            finding_of(rules["straggler"], waits, asked="1"), blamed=frozenset(blamed)
        ),
        dataclasses.replace(
            finding_of(rules["checkpoints"], saves, asked="1"), members=frozenset(ranks)
        ),
    ]
    found = sorted(effects.without_effects(made), key=lambda finding: finding.order)
    assert [finding.rule for finding in found] == order


@pytest.mark.parametrize(
    "wrong",
    [
        "a text",
        Sign(certainty="sure", summary="x"),  # type: ignore[arg-type]
        Sign(certainty="likely", summary="x", weight=None),  # type: ignore[arg-type]
        Sign(certainty="likely", summary=7),  # type: ignore[arg-type]
        Sign(certainty="likely", summary="x", evidence=(7,)),  # type: ignore[arg-type]
        Sign(certainty="likely", summary="x", evidence="abc"),  # type: ignore[arg-type]
        Sign(certainty="likely", summary="x", since_step="12"),  # type: ignore[arg-type]
        Sign(certainty="likely", summary="x", weight=math.nan),
        Sign(certainty="likely", summary="x", gravity=math.nan),  # type: ignore[arg-type]
    ],
)
def test_what_a_plugin_finds_and_nobody_can_tell_hides_nothing(wrong: Sign) -> None:
    """The rule is not judged, with whose it is; what came before counts."""
    good = Sign(certainty="likely", summary="x")
    rule = plugged._under_guard("mine", dataclasses.replace(RULES[0], look=lambda _: [good, wrong]))
    found, why = judging.run(lambda: rule.look(facts({})))
    assert [sign.summary for sign in found] == ["x"]
    assert (why or "").startswith("plugin mine failed: ")


def test_what_was_wrong_before_the_loss_was_nan_is_told_first() -> None:
    """A mode or a rate that led to it comes before it; what began later or is unsure does not."""
    rules = {rule.name: rule for rule in ALL_RULES}

    def told(name: str, since: int | None, certainty: Certainty = "likely") -> Finding:
        return finding_of(
            rules[name], Sign(certainty=certainty, summary="", since_step=since), asked="1"
        )

    made = [
        told("loss-not-finite", 135, "certain"),
        told("evaluation-mode", 120),
        told("rate-raised", 140),
        told("rate-too-high", 100, "possible"),
        told("data-wait", 50),
    ]
    found = sorted(effects.without_effects(made), key=lambda finding: finding.order)
    assert [finding.rule for finding in found] == [
        "evaluation-mode", "loss-not-finite", "rate-raised", "data-wait",
    ]  # fmt: skip


def test_rules_are_whole() -> None:
    """Each has a name of its own, a symptom, its evidence, and a next command."""
    names = [rule.name for rule in ALL_RULES]
    assert len(set(names)) == len(names)
    for rule in ALL_RULES:
        assert rule.symptom.endswith(".")
        assert rule.evidence.endswith(".")
        assert rule.next.startswith("probing ENDPOINT ")
        assert 0 < rule.gravity <= 100


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "spikes", "ties"])
def test_a_series_at_one_level_has_no_change(seed: int, kind: str) -> None:
    """Noise, rare long steps and ties are no change of level."""
    noise = np.random.default_rng(seed)
    made = {
        "normal": 0.2 * noise.standard_normal(400),
        "heavy tails": 0.1 * np.abs(noise.standard_t(2, 400)),
        "spikes": 8.0 * (noise.random(400) < 0.05),
        "ties": 0.5 * noise.integers(0, 2, 400),
    }
    values = (1 + made[kind]).astype(np.float64)
    assert last_change(values) is None


@pytest.mark.parametrize("place", [30, 200, 385])
def test_a_change_is_found_where_it_is(place: int) -> None:
    """The step of a change is told to within a few steps, also beside long single steps."""
    noise = np.random.default_rng(place)
    values = 1 + 0.1 * noise.standard_normal(400) + 5.0 * (noise.random(400) < 0.02)
    values[place:] += 1
    change = last_change(values)
    assert change is not None
    assert abs(change.place - place) <= 2
    assert change.ratio == pytest.approx(2, rel=0.1)


def test_what_was_slow_for_a_while_is_over() -> None:
    """A level that was left again is no change; one that came back since is told from there."""
    usual, slow = np.full(100, 1.0), np.full(60, 3.0)
    over = last_change(np.concatenate([usual, slow, usual]))
    assert over is None or over.after <= over.before
    again = last_change(np.concatenate([usual, slow, usual[:70], slow[:30]]))
    assert again is not None
    assert again.place == 230


def test_facts_are_asked_once() -> None:
    """The same question costs one look, also where it failed."""
    of = facts({"steps": steps(9)})
    made = threading.Event()

    def ask() -> str:
        assert not made.is_set()
        made.set()
        return "answer"

    assert of.ask("question", ask) == of.ask("question", ask) == "answer"


def test_statements_of_all_rules_are_asked_in_one() -> None:
    """They give what each gives by itself; one that cannot be had keeps none from the others."""
    rows = [
        {"step": n, "loader": 0, "batch": n, "duration": 0.1, "failed": False} for n in range(5)
    ]
    record = {"steps": steps(40), "batches": rows, "memory": [{"step": 1, "node_used_bytes": 9}]}
    asks = [sql for rule in RULES for sql in rule.asks]
    assert len(asks) >= 8
    alone, together, broken = facts(record), facts(record), facts(record)
    together.prepare(asks)
    broken.prepare([*asks, "SELECT no_such_column FROM python.steps"])
    for sql in asks:
        assert together.rows(sql) == alone.rows(sql) == broken.rows(sql), sql
    made: Any = together.process
    assert made.queries == 1


def test_each_part_of_a_look_has_an_end() -> None:
    """What came before takes from what is left, and never the last bit: it is still looked at."""
    clock = scope.Clock(100.0)
    assert clock.question_s == pytest.approx(40.0)
    assert 70.0 < clock.left_s(scope.RULES_UNTIL) <= 80.0
    assert clock.left_s(-1.0) == pytest.approx(5.0)
    assert clock.late() == "no time was left: the look may take 100 s"
    alone = scope.Clock(100.0, is_alone=True)
    assert 80.0 < alone.left_s(scope.RULES_UNTIL) <= 90.0, "no ranks are compared after that"
    assert 70.0 < alone.left_s(scope.LIVE_UNTIL) <= 80.0


def test_the_gravest_that_there_was_no_time_for_are_named_first() -> None:
    """Other reasons keep the order of the rules; a longer look is said to have time for more."""
    late = dict.fromkeys(("small-batches", "straggler", "hang"), scope.Clock(9).late())
    found = examine._missed(
        [{**late, "tf32-off": "no accelerator", "scaler-skips": "no accelerator"}]
    )
    assert [one.rules for one in found] == [
        ("hang", "straggler", "small-batches"),
        ("tf32-off", "scaler-skips"),
    ]
    report = Report(
        findings=(), healthy=(), not_looked_at=found, about="process 1", steps=3, seconds=8.6
    )
    assert report.was_late
    assert not report.is_blind
    assert render_report(report, width=100, color=False).endswith(
        "3 steps looked at, 9 s; a longer --timeout leaves time for the rest, such as 60"
    )


def test_questions_that_end_together_leave_time_for_those_after_them() -> None:
    """Of several questions each has a part of what is left, and at least a moment."""
    clock = diagnosis._Clock(8.0, 10.0)
    assert 4.0 < clock.limit_s(part=0.5) <= 5.0
    assert clock.limit_s(2.0, part=0.5) == pytest.approx(2.0)
    assert clock.limit_s() == pytest.approx(8.0)
    assert diagnosis._Clock(8.0, -1.0).limit_s() == pytest.approx(0.2)
    assert diagnosis._Clock(8.0, math.inf).limit_s(part=0.5) == pytest.approx(8.0)


def test_who_makes_no_step_is_not_called_healthy() -> None:
    """Without a step whether it gets on is not looked at; who computes in Python need not wait."""
    computing = Cause(
        rank=None, pid=1, host="here", what="holds the interpreter lock (running), at t.py:3"
    )
    verdict = dataclasses.replace(HANG, is_hang=False, outcome="fine", causes=(computing,))
    with pytest.raises(NotLookedAt, match=r"no step has ended .*: it holds"):
        signs("hang", facts({}, verdict=verdict))
    assert signs("waits", facts({}, verdict=verdict)) == []
    held = dataclasses.replace(
        computing, what="holds the interpreter lock (in a regular expression)"
    )
    (sign,) = signs("waits", facts({}, verdict=dataclasses.replace(verdict, causes=(held,))))
    assert sign.certainty == "possible"
