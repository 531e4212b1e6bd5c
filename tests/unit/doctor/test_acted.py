"""What the doctor says of what `act` has changed: that it was an action, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from probing.diagnosis.doctor.findings import finding_of
from probing.diagnosis.doctor.rules import RULES
from probing.diagnosis.doctor.turns.judging import Judged, judge

from .made import Facts, facts, signs, steps
from .records import after

_ACT = {"action_id": 3, "name": "lr", "step": 120, "state": "done", "uid": 7, "pid": 77}
_RAISED = {"lr": after(120, 0.1, 1.0), "loss": after(120, 1.0, 50.0)}
_CUT = {"lr": after(120, 0.1, 1e-5), "loss": after(120, 1.0, 0.9)}
_ZERO = {"lr": after(120, 0.1, 0.0)}
_NAN = {
    "lr": after(120, 0.1, 1.0),
    "loss": lambda s: 1.0 if s < 120 else 50.0 * (s - 119) if s < 150 else float("nan"),
    "loss_finite": lambda s: s < 150,
}


def _facts(columns: Mapping[str, Any], *acts: Mapping[str, Any], is_alive: bool = True) -> Facts:
    """A training of 200 steps, with these actions on record."""
    rows = [{"start_ns": 10**18, **act} for act in acts]
    return facts({"steps": steps(200, **columns), "actions": rows}, is_alive=is_alive)


@pytest.mark.parametrize(
    ("rule", "columns"), [("rate-raised", _RAISED), ("rate-cut", _CUT), ("rate-zero", _ZERO)]
)
@pytest.mark.parametrize("step", [119, 120, 121])
def test_a_rate_that_act_has_set_is_told_as_that(
    rule: str, columns: Mapping[str, Any], step: int
) -> None:
    """It says which action it was, when and by whom, and how to take it back."""
    (sign,) = signs(rule, _facts(columns, {**_ACT, "arguments": "scale=10.0", "step": step}))
    assert ", by `act lr` (scale=10.0)" in sign.summary
    assert sign.evidence[0].startswith(f"`act lr` (scale=10.0) was applied before step {step}, ")
    assert sign.evidence[0].endswith(" ago, by process 77 of user 7: action 3")
    assert sign.fix == "Nothing, if it is meant so; `probing PID act undo 3` takes it back."


@pytest.mark.parametrize(
    ("rule", "columns"), [("rate-raised", _RAISED), ("rate-cut", _CUT), ("rate-zero", _ZERO)]
)
@pytest.mark.parametrize(
    "other", [{"state": "refused"}, {"step": 150}, {"step": None}, {"name": "clip"}]
)
def test_a_rate_that_no_action_has_set_is_somebody_elses(
    rule: str, columns: Mapping[str, Any], other: Mapping[str, Any]
) -> None:
    """An action that was refused, at another step, or about something else explains nothing."""
    (sign,) = signs(rule, _facts(columns, {**_ACT, **other}))
    assert "act" not in sign.summary
    assert sign.fix == ""


@pytest.mark.parametrize("state", ["undone", "overwritten"])
def test_a_rate_that_was_undone_is_no_finding(state: str) -> None:
    """Neither that it was raised, nor that it fell back to what it had been."""
    undo = {"action_id": 4, "name": "undo", "step": 180, "state": "done", "undoes": 3}
    raised = {"lr": lambda s: 10.0 if 120 <= s < 180 else 0.1}
    of = _facts(raised, {**_ACT, "state": state}, undo)
    assert signs("rate-raised", of) == signs("rate-cut", of) == []
    assert [s.since_step for s in signs("rate-raised", _facts(raised))] == [120]
    assert [s.since_step for s in signs("rate-cut", _facts(raised))] == [180]


def test_a_loss_that_diverged_by_an_action_is_told_as_that() -> None:
    """A raised rate stays the cause of a NaN, undone or not; who set it need not be found."""
    for state in ("done", "undone"):
        (sign,) = signs("loss-not-finite", _facts(_NAN, {**_ACT, "state": state}))
        assert "at step 120, from 0.1 to 1, by `act lr`" in sign.summary
        assert sign.fix == "Start again with 0.1 from a checkpoint of before that."
    (sign,) = signs("loss-not-finite", _facts(_NAN))
    assert sign.fix.startswith("Find who sets that rate")


def test_an_ended_process_is_not_advised_to_undo_anything() -> None:
    """Nobody can take back what was done to it."""
    (sign,) = signs("rate-raised", _facts(_RAISED, _ACT, is_alive=False))
    assert "undo" not in sign.fix


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ({"name": "keep-layers", "arguments": "count=2"}, "`act keep-layers` (count=2) was"),
        ({"name": "undo", "arguments": "number=1", "undoes": 1}, "`act undo` of `act clip` was"),
    ],
)
def test_what_begins_where_an_action_was_applied_has_it_in_evidence(
    act: Mapping[str, Any], words: str
) -> None:
    """Whatever the rule: a loss that jumps as layers are left out has jumped by that."""
    before = {**_ACT, "action_id": 1, "name": "clip", "step": 9}
    noise: Callable[[int], float] = lambda s: 1.0 + 0.01 * (7 * s % 5)  # noqa: E731
    of = _facts({"loss": after(120, noise, lambda s: 9.0 * noise(s))}, before, {**_ACT, **act})
    judged = Judged(of.member, of, [], {})
    judge(judged)
    found = {rule.name: sign for rule, sign in judged.found}
    assert found["loss-spike"].since_step == 120
    assert found["loss-spike"].evidence[0].startswith(words)


def test_the_command_is_told_as_it_is_to_be_typed() -> None:
    """As with every other advice, the process stands in it that was asked."""
    (sign,) = signs("rate-raised", _facts(_RAISED, _ACT))
    rule = next(rule for rule in RULES if rule.name == "rate-raised")
    told = finding_of(rule, sign, asked="rank:3")
    assert "`probing rank:3 act undo 3`" in told.fix
