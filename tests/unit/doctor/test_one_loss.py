"""Ranks that share losses or not all parameters by design are not taken for replicas in trouble."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.ranks.job_rules import JOB_RULES, Job

from .made import Facts, facts, steps

pytestmark = pytest.mark.anypython

_STEPS = 100
GRADIENTS = ("all_reduce", 65_536, 3_500)
CONTRASTIVE = {
    "gathered behind the model": (("CLIP",), ("all_gather", 65_536, 1_500), 1.0, True),
    "reduced behind the model": (("VICReg",), ("all_reduce", 65_536, 1_500), 1.0, True),
    "gathered in a loss module": (("CLIP", "ClipLoss"), ("all_gather", 65_536, 2_050), 1.0, True),
    "gathered behind two towers": (("Text", "Image"), ("all_gather", 65_536, 2_500), 1.0, True),
    "gathered parameters": (("FSDP",), ("all_gather", 65_536, 1_050), 1.0, False),
    "gathered statistics of two views": (("Net", "Net"), ("all_gather", 65_536, 2_050), 1.0, False),
    "a few numbers": (("CLIP",), ("all_reduce", 4, 1_500), 1.0, False),
    "now and then": (("CLIP",), ("all_gather", 65_536, 1_500), 0.2, False),
    "in the backward pass": (("CLIP",), ("all_gather", 65_536, 3_200), 1.0, False),
}  # fmt: skip
"""The root modules, what is called when, in which share of steps, and if that is one loss."""


def _look(name: str, ranks: Mapping[int, Facts]) -> list[str]:
    """How certain a rule is of what it finds in a job."""
    job = Job(ranks=ranks, asking=None, stands_still=False)  # type: ignore[arg-type]
    (rule,) = [one for one in JOB_RULES if one.rule.name == name]
    return [sign.certainty for sign in rule.look(job)]


def _calls(called: Sequence[tuple[str, int, int, float]]) -> list[dict[str, Any]]:
    """Collectives: what, of how many bytes, when in a step, and in which share of the steps."""
    return [
        {"step": step, "op": op, "bytes": size, "start_ns": step * 10_000 + at_ns,
         "process_group": "0", "group_size": 2}
        for step in range(_STEPS)
        for op, size, at_ns, share in called
        if step < share * _STEPS
    ]  # fmt: skip


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_a_loss_of_all_batches_is_that_of_all_ranks(name: str) -> None:
    """Contrastive training gathers the outputs of all ranks, so that their losses are equal."""
    modules, called, share, is_one = CONTRASTIVE[name]
    passes = [
        *(("forward", module, 1_000 * n) for n, module in enumerate(modules, 1)),
        ("backward", "Adam", 3_000),
    ]
    trace = [
        {"step": step, "stage": stage, "class": module, "depth": 0, "duration_ns": 100,
         "start_ns": step * 10_000 + at_ns}
        for step in range(_STEPS) for stage, module, at_ns in passes
    ]  # fmt: skip
    calls = _calls([(*GRADIENTS, 1.0), (*called, share)])
    made = {"steps": steps(_STEPS), "torch_trace": trace, "collectives": calls}
    ranks = {rank: facts(made) for rank in range(2)}
    if is_one:
        with pytest.raises(NotLookedAt, match="for one loss"):
            _look("same-data", ranks)
    else:
        assert _look("same-data", ranks) == ["likely"]


@pytest.mark.parametrize(("exchanged_at", "is_one"), [(1_050, True), (3_050, False), (None, False)])
def test_ranks_that_have_parts_of_a_sample_sum_their_losses(
    exchanged_at: int | None, *, is_one: bool
) -> None:
    """Context parallelism exchanges them within the model; a metric alone is averaged anywhere."""
    trace = [
        {"step": step, "stage": stage, "class": "Net", "depth": 0, "duration_ns": 100,
         "start_ns": step * 10_000 + at_ns}
        for step in range(_STEPS) for stage, at_ns in (("forward", 1_000), ("backward", 3_000))
    ]  # fmt: skip
    exchanged = [] if exchanged_at is None else [("send", 65_536, exchanged_at, 1.0)]
    calls = _calls([(*GRADIENTS, 1.0), ("all_reduce", 8, 1_500, 1.0), *exchanged])
    made = {"steps": steps(_STEPS), "torch_trace": trace, "collectives": calls}
    ranks = {rank: facts(made) for rank in range(2)}
    if is_one:
        with pytest.raises(NotLookedAt, match="may have parts of each sample, as in context"):
            _look("same-data", ranks)
    else:
        assert _look("same-data", ranks) == ["likely"]


def test_ranks_with_experts_of_their_own_are_not_compared() -> None:
    """They give each other parts of their batches, and have parameters that no other has."""
    calls = _calls([(*GRADIENTS, 1.0), ("all_to_all", 4_096, 1_050, 1.0)])
    ranks = {rank: facts({"steps": steps(_STEPS), "collectives": calls}) for rank in range(2)}
    for of in ranks.values():
        of.member = dataclasses.replace(of.member, world_size=2)
    with pytest.raises(NotLookedAt, match="experts"):
        _look("different-parameters", ranks)
