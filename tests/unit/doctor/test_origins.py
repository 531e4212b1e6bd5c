"""Where it comes from: the first value that was not finite, and what holds a rank up."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest

from probing.cluster.ranks.question import Asking
from probing.cluster.ranks.slow.pace import RankPace
from probing.diagnosis.doctor.findings import Sign, finding_of
from probing.diagnosis.doctor.ranks import job_rules
from probing.diagnosis.doctor.ranks.why_slow import why_slow
from probing.diagnosis.doctor.report import ALL_RULES
from probing.diagnosis.doctor.rules.numbers.not_finite.first_bad import _NOT_ON_RECORD

from .made import facts, signs, steps
from .records import after, bad_since

pytestmark = pytest.mark.anypython

_LOST = {"step": 199, "module": "head", "class": "Linear", "stage": "forward", "tensor": "weight",
         "role": "given", "what": "parameter"}  # fmt: skip
_NAN_SINCE_120: dict[str, Any] = {
    "loss": after(120, 0.5, math.nan),
    "loss_finite": after(120, True, False),
}


def _gradients(step: int, **norms: float) -> list[dict[str, Any]]:
    return [{"step": step, "parameter": f"{name}.weight", "norm": norm}
            for name, norm in norms.items()]  # fmt: skip


@pytest.mark.parametrize(
    ("recorded", "says"),
    [
        ({"gradients": _gradients(119, body=math.nan, neck=math.inf, head=0.5)},
         "the weights are lost; the gradients of neck were not finite in step 119"),
        ({"nan_steps": [{"step": 119, "parameter": "body.weight", "bad_parameters": 2}]},
         "the weights are lost; the gradients of body were not finite in step 119"),
        ({"gradients": _gradients(150, body=math.nan)}, ""),
        ({}, ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("seen", [True, False], ids=["watched", "ended"])
def test_where_a_nan_began_is_named_if_it_is_on_record(
    recorded: dict[str, Any], says: str, *, seen: bool
) -> None:
    """By gradients of the step before; where nobody looked at them, that is said."""
    recorded = {"steps": steps(200, **_NAN_SINCE_120), "numerics": [_LOST] * seen, **recorded}
    (sign,) = signs("loss-not-finite", facts(recorded, is_alive=seen))
    if says:
        assert sign.summary.endswith(says if seen else says.partition("; ")[2])
        assert _NOT_ON_RECORD not in sign.evidence
    else:
        assert "gradients of" not in sign.summary
        assert _NOT_ON_RECORD in sign.evidence


@pytest.mark.parametrize(
    ("norm", "summary", "evidence"),
    [
        (math.nan, "the backward pass of step 119 made it", "the norm of the gradients was nan"),
        (math.inf, "the backward pass of step 119 made it", "the norm of the gradients was inf"),
        (0.5, "", "was 0.5: so the update of step 119, or the data or forward pass of step 120"),
        (None, "", _NOT_ON_RECORD),
    ],
)
def test_the_norm_of_the_last_finite_loss_tells_which_pass_made_it(
    norm: float | None, summary: str, evidence: str
) -> None:
    """A script that clips has it on record in every step."""
    recorded = {"steps": steps(200, **_NAN_SINCE_120, grad_norm=after(120, norm, math.nan))}
    (sign,) = signs("loss-not-finite", facts(recorded, is_alive=False))
    assert summary in sign.summary
    assert ("backward pass" in sign.summary) == bool(summary)
    assert any(evidence in line for line in sign.evidence)


def test_a_watch_of_the_step_before_names_the_module() -> None:
    """Gradients that are not finite make the loss of the next step so: that is the same NaN."""
    of = bad_since(120, step=119, stage="backward", role="producer", what="grad")()
    (sign,) = signs("loss-not-finite", of)
    assert "head.2 (Log) makes it in the backward pass" in sign.summary


def _pace(**phases: float) -> RankPace:
    return RankPace(
        rank=1, host="a", device=None, cohort=0, own_s=0.3, blocked_s=0.0, excess_s=0.2, z=9.0,
        slow_steps=40, steps=40, phases=phases,
        costs={"cpu_s": 0.0, "involuntary_switches": 30.0, "voluntary_switches": 0.0},
    )  # fmt: skip


_LOADER = {"loader": 0, "dataset": "Rows", "num_workers": 0, "persistent_workers": False}
_CHECKPOINTS = [{"step": n, "duration": 0.05, "caller": "t.py:7"} for n in range(60)]


def test_a_rank_that_waits_for_its_data_is_told_as_that() -> None:
    """Its loader and what to do about it, and not only what the kernel has counted."""
    own = facts({"steps": steps(60, data_wait_s=0.07)}, {"dataloaders": [_LOADER]})
    why = why_slow(_pace(data_wait=0.18, forward=0.01), {0: facts({"steps": steps(60)}), 1: own})
    assert why.words == "it waits for its own data"
    assert why.evidence[0] == "180 ms more in the wait for data than others"
    assert "no workers" in why.evidence[1]
    assert why.fix.endswith("num_workers=2 or more, and persistent_workers=True.")
    assert why_slow(_pace(data_wait=0.18), {1: facts()}).words == "it waits for its own data"


@pytest.mark.parametrize(
    ("samples", "own_s", "is_told"),
    [
        ((40, 88), 0.3, True),
        ((40, 44), 0.3, False),
        ((40, 88), 3.0, False),
        ((None, 88), 0.3, False),
    ],
)
def test_a_rank_that_is_given_more_is_told_as_that(
    samples: tuple[int | None, int], own_s: float, *, is_told: bool
) -> None:
    """Where it takes longer by as much as it has more to do, which may be meant."""
    ranks = {rank: facts({"steps": steps(60, samples=n)}) for rank, n in enumerate(samples)}
    pace = dataclasses.replace(_pace(forward=0.1), own_s=own_s, excess_s=own_s - 0.13)
    why = why_slow(pace, ranks)
    assert why.is_doubtful == is_told
    assert (why.words == "its batches are larger: 88 in a step, and 40 on the others") == is_told


def test_a_rank_that_is_given_more_comes_before_a_loss_that_may_be_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are only possible: the one was measured twice, the other is what has not been seen."""
    ranks = {rank: facts({"steps": steps(60, samples=n)}) for rank, n in enumerate((40, 88))}
    pace = dataclasses.replace(_pace(forward=0.1), excess_s=0.17)
    slow = SimpleNamespace(stragglers=(pace,), step_s=2.0)
    monkeypatch.setattr(job_rules, "find_stragglers", lambda _: slow)
    asking = Asking(members=(), timeout_s=1.0, token=None)
    job = job_rules.Job(ranks=ranks, asking=asking, stands_still=False)
    rules = {rule.name: rule for rule in ALL_RULES}
    look = next(one.look for one in job_rules.JOB_RULES if one.rule.name == "straggler")
    (sign,) = look(job)
    flat = Sign(certainty="possible", summary="", weight=0.6)
    held_up = finding_of(rules["straggler"], sign, asked="1")
    assert held_up.certainty == "possible"
    assert held_up.order < finding_of(rules["loss-flat"], flat, asked="1").order


@pytest.mark.parametrize(
    ("of_others", "saves", "words"),
    [
        ((), _CHECKPOINTS, "it alone writes checkpoints meanwhile, at t.py:7"),
        (_CHECKPOINTS, _CHECKPOINTS, "the processor was taken from its thread"),
        ((), _CHECKPOINTS[::20], "the processor was taken from its thread"),
    ],
)
def test_a_rank_that_alone_writes_checkpoints_is_told_as_that(
    of_others: Any, saves: Any, words: str
) -> None:
    """Where all ranks write them, or one writes a few, they are not the difference."""
    ranks = {
        rank: facts({"steps": steps(60), "checkpoints": rows})
        for rank, rows in enumerate((of_others, saves))
    }
    why = why_slow(_pace(other=0.15), ranks)
    assert words in why.words
    assert (why.rule == "checkpoints") == words.startswith("it alone")


def test_nothing_is_named_that_is_less_than_half_of_it() -> None:
    """What the kernel has counted is told then."""
    why = why_slow(_pace(data_wait=0.05, forward=0.06), {1: facts()})
    assert why.words.startswith("the processor was taken from its thread")
    assert not why.next


@pytest.mark.parametrize(
    ("crowd", "taken", "is_doubtful"),
    [("others use it", 30.0, True), ("others use it", 0.0, False), ("", 30.0, False)],
)
def test_a_rank_that_others_take_the_processor_of_need_not_be_at_fault(
    crowd: str, taken: float, *, is_doubtful: bool
) -> None:
    """Where its machine has more to do than it can; one that sleeps is slow by itself."""
    own = facts({"steps": steps(60)})
    own.__dict__["crowd"] = crowd
    pace = _pace(forward=0.18)
    pace = dataclasses.replace(pace, costs={**pace.costs, "involuntary_switches": taken})
    why = why_slow(pace, {1: own})
    assert why.is_doubtful == is_doubtful
    assert (crowd in why.evidence) == is_doubtful


def test_computing_is_not_told_where_it_was_not_counted() -> None:
    """That others collect more garbage says nothing of what this rank computes."""
    pace = dataclasses.replace(_pace(), costs={"gc_s": -0.3, "involuntary_switches": 30.0})
    assert not why_slow(pace, {1: facts()}).words
