"""Which ranks of a pipeline hold up others, told from tables with a known answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from probing.cluster.ranks.slow.clocks import align_clocks
from probing.cluster.ranks.slow.cohorts import cohorts_of
from probing.cluster.ranks.slow.gather_times import _device_steps
from probing.cluster.ranks.slow.own_time import own_steps
from probing.cluster.ranks.slow.stragglers import StragglerReport, find_stragglers
from probing.cluster.ranks.slow.times import Collective, RankTimes, Span, Step
from probing.tables import STEP_PHASES as PHASES

pytestmark = pytest.mark.anypython

STEPS = 20
GRADIENTS_S = 0.001
"""What an all_reduce takes."""


def message(op: str, peer: int, step: int, start_s: float, blocked_s: float) -> Collective:
    """A message that a rank has waited for."""
    start_ns = round(start_s * 1e9)
    return Collective(
        group="0", seq=step, op=op, step=step, start_ns=start_ns, peer=peer, size=8,
        end_ns=start_ns + round(blocked_s * 1e9), blocked_s=blocked_s,
    )  # fmt: skip


def pipeline(work_s: Sequence[Sequence[float]]) -> list[RankTimes]:
    """A pipeline: every stage waits for the one before it, and averages with its replicas.

    Args:
        work_s: For each replica what each stage needs in a step; rank by rank in that order.
    """
    stages = len(work_s[0])
    told = [RankTimes(rank=rank, job="j", number=rank, host="n") for rank in range(
        stages * len(work_s)
    )]  # fmt: skip
    begins_s = 1e6
    for step in range(STEPS):
        ends = [[begins_s + sum(own[: at + 1]) for at in range(stages)] for own in work_s]
        leaves = [max(own[at] for own in ends) + GRADIENTS_S for at in range(stages)]
        next_s = max(leaves)
        for rank, one in enumerate(told):
            replica, stage = divmod(rank, stages)
            jitter_s = 1e-5 * ((7 * step + 3 * rank) % 5)
            enters_s = ends[replica][stage] + jitter_s
            took = [message("send", rank + 1, step, enters_s, 0.0)] if stage < stages - 1 else []
            if stage:
                came_s = ends[replica][stage - 1]
                took += [message("recv", rank - 1, step, begins_s, came_s - begins_s)]
                took += [message("send", rank - 1, step, enters_s, 0.0)]
            if stage < stages - 1:
                took += [message("recv", rank + 1, step, enters_s, 0.0)]
            if len(work_s) > 1:
                took += [
                    dataclasses.replace(
                        message("all_reduce", 0, step, enters_s, leaves[stage] - enters_s),
                        peer=None, group=f"dp{stage}", size=len(work_s),
                    )
                ]  # fmt: skip
            made = Step(
                step=step,
                start_ns=round(begins_s * 1e9),
                duration_s=next_s - begins_s,
                sync_s=leaves[stage] - enters_s,
            )
            moments = {
                "forward": ends[replica][stage - 1] if stage else begins_s,
                "backward": enters_s,
                "optimizer": leaves[stage],
            }
            spans = [
                Span(phase=phase, start_ns=round(at * 1e9), end_ns=round(at * 1e9))
                for phase, at in moments.items()
            ]
            told[rank] = dataclasses.replace(
                told[rank],
                steps=(*told[rank].steps, made),
                spans=(*one.spans, *spans),
                collectives=(*told[rank].collectives, *took),
            )
        begins_s = next_s
    return told


def blamed(report: StragglerReport) -> list[int | str]:
    """The ranks that are stragglers."""
    return [pace.rank for pace in report.stragglers]


def test_a_stage_that_waits_for_a_slow_one_is_not_blamed() -> None:
    """Of two replicas of a pipeline rank 0 is slow: rank 1 only waits in `recv` for it."""
    report = find_stragglers(pipeline([(0.07, 0.02), (0.02, 0.02)]))
    assert (report.cohorts, blamed(report)) == (((0, 2), (1, 3)), [0])
    assert report.stragglers[0].excess_s == pytest.approx(0.05, abs=0.002)


def test_the_stages_of_one_pipeline_are_not_compared() -> None:
    """The last of three stages has a larger head, as it is meant to."""
    report = find_stragglers(pipeline([(0.05, 0.05, 0.09)]))
    assert (report.alone, blamed(report)) == ((0, 1, 2), [])


def test_replicas_of_long_pipelines_are_compared() -> None:
    """Each stage is compared with its replicas, those in the middle, too."""
    work = [[0.02, 0.03, 0.02, 0.03, 0.04] for _ in range(4)]
    calm = find_stragglers(pipeline(work))
    assert {frozenset(ranks) for ranks in calm.cohorts} == {
        frozenset(range(stage, 20, 5)) for stage in range(5)
    }
    assert blamed(calm) == []
    work[2][3] += 0.05
    assert blamed(find_stragglers(pipeline(work))) == [13]


def test_a_wait_between_two_micro_batches_is_no_own_time() -> None:
    """Behind a backward pass that another forward follows, no wait is one for gradients."""
    at_s = {"forward": 0.0, "backward": 0.2, "forward again": 0.7, "optimizer": 0.9}
    spans = [
        Span(phase=name.split()[0], start_ns=round(at * 1e9), end_ns=round(at * 1e9) + 10**8)
        for name, at in at_s.items()
    ]
    one = RankTimes(
        rank=0,
        number=0,
        steps=(Step(step=0, start_ns=0, duration_s=1.0, sync_s=0.1),),
        spans=tuple(spans),
        collectives=(message("recv", 1, 0, 0.3, 0.4),),
    )
    own = own_steps([one], align_clocks([one]))[0][0]
    assert own.blocked_s == pytest.approx(0.5)


def linked(
    ranks: int, peers: dict[str, int], *, steps: int = STEPS, took_s: float = 0.0
) -> list[list[int | str]]:
    """The cohorts of ranks that exchange messages with those so far behind them, in some steps."""
    told = [
        RankTimes(
            rank=rank,
            job="j",
            number=rank,
            steps=tuple(Step(step=step, start_ns=0, duration_s=1.0) for step in range(STEPS)),
            collectives=tuple(
                message(op.split()[0], (rank + by) % ranks, step, 0.0, took_s)
                for op, by in peers.items()
                for step in range(steps)
            ),
        )
        for rank in range(ranks)
    ]
    return [[one.rank for one in group] for group in cohorts_of(told)]


def test_who_sends_around_a_ring_is_compared() -> None:
    """As in ring attention: each sends to the next, and none is the first."""
    assert linked(4, {"send": 1, "recv": -1}) == [[0, 1, 2, 3]]


def test_the_ends_of_a_pipeline_that_goes_around_are_told_apart() -> None:
    """An interleaved pipeline has several parts of the model on each rank, in both directions."""
    both = {"send there": 1, "recv there": 1, "recv back": -1, "send back": -1}
    assert linked(4, both) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("ranks", [2, 4])
def test_who_exchanges_with_its_neighbors_is_compared(ranks: int) -> None:
    """As in a ring attention of two, or at the edges of a grid: both begin alike."""
    sends = {"send there": 1, "send back": -1}
    recvs = {"recv there": 1, "recv back": -1}
    assert linked(ranks, sends | recvs) == [[*range(ranks)]]
    assert linked(ranks, recvs | sends, took_s=1.0) == [[*range(ranks)]]


def test_a_message_now_and_then_tells_nobody_apart() -> None:
    """Only what is sent in most steps is the work of a rank."""
    assert linked(3, {"send": 1, "recv there": 1}, steps=2) == [[0, 1, 2]]


def test_messages_on_a_device_are_waits_of_unknown_length() -> None:
    """They have numbers of their own, which are not those of collectives."""
    row = {"process_group": "0", "seq": 4, "step": 1, "start_ns": 0, "device_s": 0.1}
    took = [{**row, "op": op, "group_size": 2} for op in ("all_reduce", "recv")]
    (step,) = _device_steps([{**row, **{f"{p}_s": None for p in PHASES}}], took)
    assert step.took_s == {("0", 4): (0.1, 2), ("0 recv", 4): (None, 2)}
