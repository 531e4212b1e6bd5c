"""Parameters of ranks are compared where they are of one moment: after the same collectives."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from probing.cluster.job.outcomes import Outcome
from probing.diagnosis.doctor.findings import Sign
from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.ranks.job_rules import JOB_RULES, Job
from probing.errors import UsageError

from .made import Facts, MadeProcess, Row, facts, steps

pytestmark = pytest.mark.anypython

_STEPS = 60
_PER_STEP = 2
Calls = Mapping[int, range]


class _Asking:
    """Asks ranks that answer at once.

    Args:
        at: The step at whose end they look at their parameters.
        critics: Ranks that have another model of the class, the same on all of them.
    """

    timeout_s = 9.0

    def __init__(
        self,
        ranks: Mapping[int, Facts],
        at: int,
        rates: Mapping[int, str] | None = None,
        critics: Collection[int] = (),
    ) -> None:
        self._ranks, self._critics = ranks, critics
        self._at = at
        self._rates = rates or {}
        self.names = {of.member: rank for rank, of in ranks.items()}

    def ask(self, question: Any, **_: object) -> tuple[Outcome[Any], ...]:
        """What each says."""
        return tuple(
            Outcome(member=of.member, value=question(self._rank(of, rank), of.member),
                    error=None, seconds=0.1, state="answered")
            for rank, of in self._ranks.items()
        )  # fmt: skip

    def _rank(self, of: Facts, rank: int) -> _Rank:
        has_critic = rank in self._critics
        return _Rank(of, rank, self._at, rate=self._rates.get(rank, "0.1"), has_critic=has_critic)


class _Rank:
    """A rank whose only parameter, and whose rate, is unlike that of others."""

    def __init__(
        self, of: Facts, rank: int, at: int, *, rate: str = "0.1", has_critic: bool = False
    ) -> None:
        self.query = of.process.query
        row = {"step": at, "kind": "parameter", "root": "Net", "model": "net",
               "parameter": "weight", "shape": "[4]", "dtype": "float32", "is_shard": False,
               "checksum": f"crc32:{rank}"}  # fmt: skip
        option = {"kind": "optimizer", "root": "SGD", "parameter": "group 0 lr", "checksum": rate}
        critic = {"model": "critic", "checksum": "crc32:9"}
        self._rows = [row, *([row | critic] if has_critic else []), row | option]

    def live(self, table: str, **_: object) -> Any:
        """Its parameter and its rate."""
        process = MadeProcess({}, {table: self._rows if "checksums" in table else []})
        answer: Any = process.live(table)
        answer.note = None
        return answer

    def settings(self) -> None:
        """It has none to tell."""
        raise UsageError("it has no settings")


def _rank(
    number: int, calls: Calls, first: int, lr: float = 0.1, models: Sequence[Row] = ()
) -> Facts:
    """A rank with steps from `first` on and the numbers of the collectives in each.

    Args:
        lr: Its learning rate from its 20th step on.
    """
    rates = steps(_STEPS, lr=lambda step: 0.1 if step < 20 else lr)
    made = [row | {"step": first + n} for n, row in enumerate(rates)]
    rows = [
        {"step": step, "op": "all_reduce", "process_group": "0", "group_size": 2, "seq": seq}
        for step, numbers in calls.items()
        for seq in numbers
    ]
    of = facts({"steps": made, "collectives": rows}, {"models": models})
    of.member = dataclasses.replace(of.member, rank=number, world_size=2)
    return of


def _calls(first: int, skipped: int = 0) -> dict[int, range]:
    """Collectives of steps, the first of which come after some of steps of others."""
    start = (first + skipped) * _PER_STEP
    return {
        first + n: range(start + n * _PER_STEP, start + (n + 1) * _PER_STEP) for n in range(_STEPS)
    }


def _compare(
    other: Calls,
    *,
    first: int = 0,
    at: int = 50,
    rates: Mapping[int, str] | None = None,
    lr: float = 0.1,
    critics: Collection[int] = (),
    models: Sequence[Row] = (),
) -> list[Sign]:
    ranks = {0: _rank(0, _calls(0), 0, models=models), 1: _rank(1, other, first, lr, models)}
    asking: Any = _Asking(ranks, at, rates, critics)
    (rule,) = (one for one in JOB_RULES if one.rule.name == "different-parameters")
    return list(rule.look(Job(ranks=ranks, asking=asking, stands_still=False)))


def test_ranks_at_the_same_collective_after_the_same_step_are_compared() -> None:
    """Their parameters are of one moment, and differ."""
    (sign,) = _compare(_calls(0))
    assert sign.summary.endswith("1 of 1 differ after the same step, first weight")


@pytest.mark.parametrize(("critics", "number"), [((0, 1), "1 of 2"), ((0,), "1 of 1")])
def test_models_of_one_class_are_told_apart(critics: Collection[int], number: str) -> None:
    """The parameters of another model, on all ranks or on one alone, are not taken for these."""
    (sign,) = _compare(_calls(0), critics=critics)
    assert sign.summary.endswith(f"{number} differ after the same step, first net.weight")


@pytest.mark.parametrize(
    ("owned", "other", "says"),
    [("net", None, True), ("net", "DistributedDataParallel", True), ("critic", None, False)],
)
def test_a_wrapper_around_what_differs_is_told(
    owned: str, other: str | None, *, says: bool
) -> None:
    """Unless passes go past it or are inside of no_sync, or a rank alone has loaded others."""
    base = {"class": "Net", "parameters": 4, "trainable": 4, "wrappers": "DistributedDataParallel"}
    models = [
        {**base, "model": owned},
        {**base, "model": "head", "class": "Head", "wrappers": other},
    ]
    (sign,) = _compare(_calls(0), critics=(0, 1), models=models)
    assert ("though inside of DistributedDataParallel" in sign.summary) is says
    assert ("or they were changed on some ranks since" in sign.summary) is says
    assert ("no_sync" in sign.fix) is ("Load a checkpoint on all ranks" in sign.fix) is says


@pytest.mark.parametrize(
    ("called", "class_name", "said"),
    [("net", "Net", "net: "), ("net", "Body", "Body: "), ("other", "Net", "")],
)
def test_a_model_outside_of_the_wrapper_is_told(called: str, class_name: str, said: str) -> None:
    """By its class, or by its own name where one inside has that class; only what differs."""
    base: Row = {"parameters": 4, "trainable": 4}
    models = [
        {**base, "model": "gen", "class": "Net", "wrappers": "DistributedDataParallel"},
        {**base, "model": called, "class": class_name, "wrappers": None},
    ]
    (sign,) = _compare(_calls(0), critics=(0, 1), models=models)
    assert (f", all of {said}outside of DistributedDataParallel" in sign.summary) is bool(said)
    assert sign.fix.startswith("Wrap it, too") is bool(said)


def test_a_frozen_model_is_not_taken_for_the_one_inside() -> None:
    """As an average of the parameters, which is in no wrapper, and of the same class."""
    base = {"class": "Net", "parameters": 4}
    models = [
        {**base, "model": "gen", "trainable": 4, "wrappers": "DistributedDataParallel"},
        {**base, "model": "net", "trainable": 0, "wrappers": None},
    ]
    (sign,) = _compare(_calls(0), critics=(0, 1), models=models)
    assert sign.summary.endswith("first net.weight")


def test_rates_that_differ_are_told_with_what_they_do() -> None:
    """As where each rank's scheduler is given its own loss of an evaluation."""
    (sign,) = _compare(_calls(0), rates={1: "0.05"})
    assert sign.summary.endswith("first weight; SGD group 0 lr differs, too")
    assert sign.evidence[1] == "SGD group 0 lr is 0.1 on rank 0, 0.05 on rank 1"
    assert "all_reduced" in sign.fix
    (sign,) = _compare(_calls(0), lr=0.05)
    assert sign.summary.endswith("in 40 steps, first in step 20: 0.1 on rank 0, 0.05 on rank 1")
    assert "all_reduced" in sign.fix


@pytest.mark.parametrize(
    ("other", "first", "at", "why"),
    [
        (_calls(0, skipped=2), 0, 50, r"step 59 begins with all_reduce 118, 122 of group 0"),
        (_calls(100, skipped=2), 100, 120, "made different numbers of steps"),
        # It stood by for two steps of another rank, and its own step came after that.
        ({**_calls(0), 59: range(118, 124)}, 0, 50, "do not make their steps together"),
        (_calls(0), 0, 75, "collectives of step 75 are not the same"),
    ],
)
def test_ranks_with_uneven_inputs_are_not_compared(
    other: Calls, first: int, at: int, why: str
) -> None:
    """As under Join: after the same step they are at other collectives, and that is said."""
    with pytest.raises(NotLookedAt, match=why):
        _compare(other, first=first, at=at)


@pytest.mark.parametrize("at_ns", [1_500, 3_000])
def test_ranks_that_compute_each_batch_together_are_meant_to_have_one(at_ns: int) -> None:
    """Parts of sums are reduced inside of the forward there, and gradients after it."""
    calls = [{"step": 9, "model": "m", "stage": "forward", "depth": 0, "start_ns": 1_000,
              "duration_ns": 1_000}]  # fmt: skip
    reduced = [{"step": 9, "op": "all_reduce", "start_ns": at_ns, "bytes": 4096}]
    made = {"steps": steps(100), "torch_trace": calls, "collectives": reduced}
    job = Job(ranks={0: facts(made), 1: facts(made)}, asking=None, stands_still=False)  # type: ignore[arg-type]
    (rule,) = [one for one in JOB_RULES if one.rule.name == "same-data"]
    if at_ns > 2_000:
        assert [sign.certainty for sign in rule.look(job)] == ["likely"]
        return
    with pytest.raises(NotLookedAt):
        list(rule.look(job))
