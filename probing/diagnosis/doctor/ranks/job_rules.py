"""Rules that compare the ranks of a job with each other.

Rules of this file: pure functions of the facts of all ranks that were looked at, by rank; each is
named by one `JobRule` at the end. Ranks of unlike work, as the stages of a pipeline, are compared
in nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ....cluster.ranks.differences import PARAMETER, compare_facts
from ....cluster.ranks.gather_facts import gather_facts
from ....cluster.ranks.slow.gather_times import gather_times
from ....cluster.ranks.slow.pace import Z_LIMIT
from ....cluster.ranks.slow.stragglers import find_stragglers
from ....messages.frozen import dataclass
from ....units import duration
from ..facts import Facts, percent
from ..findings import Rule, Sign, of_several
from ..not_looked_at import NotLookedAt
from ..rules.numbers.gradients import listed
from .left_out import STEPS, left_out
from .one_loss import why_one_loss
from .why_apart import why_apart
from .why_slow import why_slow

if TYPE_CHECKING:
    from ....cluster.ranks.question import Asking
    from ....cluster.ranks.slow.times import RankTimes

_SAME_LOSSES = 8
_LAST, _MANY = 40, 120
_FEW_RANKS = 16
"""So few are asked for more steps: where times vary, more of them tell."""
_SPANS = (
    "SELECT step, process_group, min(seq) AS first, max(seq) AS last FROM python.collectives"
    " WHERE op = 'all_reduce' AND group_size = {world}"
    "  AND step IN (SELECT step FROM python.steps WHERE duration IS NOT NULL)"
    "  AND step > (SELECT min(step) FROM python.collectives)"
    " GROUP BY ALL ORDER BY step DESC LIMIT 1000"
)
"""Without the oldest step: of that, some may be overwritten."""
_SPAN_OF = (
    "SELECT process_group, min(seq) AS first, max(seq) AS last FROM python.collectives"
    " WHERE op = 'all_reduce' AND group_size = {world} AND step = {step}"
    " GROUP BY ALL ORDER BY process_group"
)
_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The ranks of a job.

    Attributes:
        ranks: What each tells that was looked at.
        asking: How all of them are asked.
        stands_still: Whether nothing live may be asked.
        times: What they spent their last steps on, before anything else was asked of them.
    """

    ranks: Mapping[int, Facts]
    asking: Asking
    stands_still: bool
    times: tuple[RankTimes, ...] = ()

    def need_answers(self) -> None:
        """Make sure that the ranks train.

        Raises:
            NotLookedAt: They do not.
        """
        if self.stands_still:
            raise NotLookedAt("the training does not go on")
        if not all(facts.is_alive for facts in self.ranks.values()):
            raise NotLookedAt("not all ranks are alive")


def times_of(asking: Asking) -> tuple[RankTimes, ...]:
    """What the ranks spent their last steps on."""
    last = _MANY if len(asking.members) <= _FEW_RANKS else _LAST
    return gather_times(asking, last=last)[0]


def _straggler(job: Job) -> Iterator[Sign]:
    """Ranks hold up the others."""
    report = find_stragglers([one.of_last(_LAST) for one in job.times])
    if not report.stragglers:
        report = find_stragglers(job.times)
    if not report.stragglers:
        return
    worst = report.stragglers[0]
    share = worst.excess_s / report.step_s if report.step_s else 0.0
    names = ", ".join(str(pace.rank) for pace in report.stragglers[:4])
    why = why_slow(worst, job.ranks)
    yield Sign(
        certainty="possible" if why.is_doubtful else "likely",
        summary=f"Rank{'s' if len(report.stragglers) > 1 else ''} {names} hold"
        f"{'s' if len(report.stragglers) == 1 else ''} up the others: {duration(worst.excess_s)}"
        f" more per step than its like{f': {why.words}' if why.words else ''}",
        evidence=(
            f"slow in {worst.slow_steps} of {worst.steps} steps, {worst.z:.1f} standard deviations"
            if worst.z >= Z_LIMIT
            else f"the slowest of all in {worst.slow_steps} of {worst.steps} steps: not by chance",
            f"last to come to {worst.last_in} of {worst.collectives} collectives",
            f"{percent(share)} of a step",
            *why.evidence,
        ),
        weight=min(1.0, share),
        gravity=why.gravity,
        fix=why.fix,
        next=why.next,
        caused_by=why.rule,
        ranks=frozenset(pace.rank for pace in report.stragglers if isinstance(pace.rank, int)),
    )


def _same_data(job: Job) -> Iterator[Sign]:
    """Ranks have bit for bit the same losses.

    Raises:
        NotLookedAt: They compute them together, so that their losses are one.
    """
    for facts in job.ranks.values():
        if (why := why_one_loss(facts)) is not None:
            raise NotLookedAt(why)
    by_step: dict[int, set[float]] = {}
    seen: dict[int, int] = {}
    for facts in job.ranks.values():
        for row in facts.steps.rows[-200:]:
            if row["loss"] is not None and row["loss"] == row["loss"]:
                by_step.setdefault(row["step"], set()).add(row["loss"])
                seen[row["step"]] = seen.get(row["step"], 0) + 1
    common = [step for step, number in seen.items() if number == len(job.ranks)]
    same = [step for step in common if len(by_step[step]) == 1]
    different = {next(iter(by_step[step])) for step in same}
    if len(common) < _SAME_LOSSES or len(same) < 0.9 * len(common):
        return
    if len(different) < _SAME_LOSSES:
        return
    yield Sign(
        certainty="likely",
        summary=f"All {len(job.ranks)} ranks have the same loss in each step, to the last bit: they"
        " train on the same data, and all but one add nothing",
        since_step=min(common),
        evidence=(f"{len(same)} of {len(common)} steps that all ranks have on record",),
        weight=0.8,
    )


def _different_parameters(job: Job) -> Iterator[Sign]:
    """Ranks have parameters that should be equal and are not."""
    job.need_answers()
    _need_replicas(job)
    _need_no_experts(job)
    _need_lockstep(job)
    told, _ = gather_facts(job.asking)
    comparison = compare_facts([one.facts for one in told])
    found = [
        one
        for one in comparison.differences
        if one.kind == PARAMETER and all(group.value is not None for group in one.groups)
    ]  # a rank may evaluate another model besides
    if not found:
        return
    _need_same_moment(job, comparison.steps[-1].value if comparison.steps else None)
    why = why_apart(job.ranks, comparison.differences)
    yield Sign(
        certainty="likely",
        summary=f"The ranks have different parameters: {len(found)} of"
        f" {len(found) + comparison.equal.get(PARAMETER, 0)} differ after the same step, first"
        f" {found[0].name}{why.words}",
        evidence=(
            "checksums of all parameters, at the end of one step of all ranks",
            *why.evidence,
        ),
        weight=0.9,
        fix=why.fix,
    )


def _left_out_step(job: Job) -> Iterator[Sign]:
    """One rank leaves out optimizer steps that another makes."""
    _need_replicas(job)
    found = left_out({rank: facts.rows(STEPS) for rank, facts in job.ranks.items()})
    if not found:
        return
    first, *others = sorted(found, key=lambda rank: -len(found[rank]))
    steps = found[first]
    times = "an optimizer step" if len(steps) == 1 else f"{len(steps)} optimizer steps"
    too = [f"rank {one} {len(found[one])}" for one in others]
    whose = f"that other ranks made ({listed(too)})" if too else "that other ranks made"
    yield Sign(
        certainty="likely",
        summary=f"Rank {first} left out {times} {whose}: the parameters of the ranks drift apart",
        evidence=(
            f"step {steps[-1]} of rank {first} has the passes and the collectives of two, in which"
            " another rank has ended a step",
        ),
        weight=1.0,
        since_step=min(steps[0] for steps in found.values()),
    )


def _need_lockstep(job: Job) -> None:
    """Make sure that steps of the same number are the same step on all ranks.

    Where ranks have uneven numbers of batches, as under torch's Join, one makes steps that others
    do not: then they stand at another collective after as many.

    Raises:
        NotLookedAt: They are not, or that is not known.
    """
    spans = [
        {(row["step"], row["process_group"]): (row["first"], row["last"]) for row in rows}
        for rows in _asked(job, _SPANS)
    ]
    common = set.intersection(*map(set, spans))
    if not common:
        raise NotLookedAt(
            "the ranks have made different numbers of steps: no step with collectives is on record"
            " of all of them"
        )
    apart = [key for key in sorted(common) if len({own[key] for own in spans}) > 1]
    if apart:
        numbers = ", ".join(f"{own[apart[-1]][0]}" for own in spans[:_NAMED])
        raise NotLookedAt(
            "the ranks do not make their steps together, so that parameters after the same step"
            f" are not those of one moment: step {apart[-1][0]} begins with all_reduce {numbers} of"
            f" group {apart[-1][1]}"
        )


def _need_same_moment(job: Job, step: str | None) -> None:
    """Make sure that a step, at whose end all ranks have looked, was the same on all of them.

    Raises:
        NotLookedAt: It was not, or that is not known.
    """
    if step is None:
        raise NotLookedAt("no step is known at which all ranks looked at their parameters")
    found = _asked(job, _SPAN_OF, step=step)
    if not found[0] or any(rows != found[0] for rows in found):
        raise NotLookedAt(f"the collectives of step {step} are not the same on all ranks")


def _asked(job: Job, sql: str, **values: object) -> list[list[dict[str, object]]]:
    """The rows of each rank's own record."""
    return [
        facts.rows(sql.format(world=facts.member.world_size, **values))
        for facts in job.ranks.values()
    ]


def _need_replicas(job: Job) -> None:
    """Make sure that all ranks average their gradients with each other.

    Raises:
        NotLookedAt: They do not.
    """
    if not all(_is_replica(facts) for facts in job.ranks.values()):
        raise NotLookedAt("the ranks do not all reduce gradients with each other")


def _need_no_experts(job: Job) -> None:
    """Make sure that no rank may have parameters that others are not meant to have.

    Raises:
        NotLookedAt: They give each other parts of their batches, as to experts.
    """
    if any(facts.rows(_EXCHANGED)[0]["calls"] for facts in job.ranks.values()):
        raise NotLookedAt(
            "the ranks exchange parts of their batches (all_to_all), as where each has experts or"
            " tables of its own"
        )


def _is_replica(facts: Facts) -> bool:
    """Whether a rank averages gradients with all others in each step, as its parameters then are.

    Who averages parameters now and then, as in local SGD, has others in between.
    """
    row = facts.rows(_AVERAGED)[0]
    is_message = facts.rows(
        "SELECT count(*) AS calls FROM python.collectives WHERE op IN ('send', 'recv')"
    )
    world = facts.member.world_size
    are_averaged = row["averaged"] > _MOST_STEPS * row["steps"]
    return are_averaged and row["size"] == world and not is_message[0]["calls"]


_EXCHANGED = "SELECT count(*) AS calls FROM python.collectives WHERE op = 'all_to_all'"
_AVERAGED = (
    "WITH newest AS (SELECT step FROM python.steps WHERE duration IS NOT NULL"
    "  ORDER BY step DESC LIMIT 20)"
    " SELECT max(group_size) AS size, count(DISTINCT step) AS averaged,"
    "  (SELECT count(*) FROM newest) AS steps"
    " FROM python.collectives WHERE op = 'all_reduce' AND step IN (SELECT step FROM newest)"
)
_MOST_STEPS = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRule:
    """A rule about the ranks of a job.

    Attributes:
        rule: What it is.
        look: What finds it.
    """

    rule: Rule
    look: Callable[[Job], Iterable[Sign]]


JOB_RULES = (
    JobRule(
        rule=Rule(
            name="straggler",
            group="slow",
            subject="ranks",
            symptom="All ranks wait in collectives for one.",
            evidence="The verdict of `stragglers` over the last 40 steps; of up to 16 ranks, else"
            " over the last 120. The cause is named where half of the difference is in the wait for"
            " data, in checkpoints that this rank alone writes, or in its larger batches; else what"
            " the kernel has counted: possible where others take its processor.",
            certainty="likely",
            gravity=48,
            fix="Look at that rank alone: its data, its machine, its device.",
            next="probing ENDPOINT stragglers",
            look=of_several,
        ),
        look=_straggler,
    ),
    JobRule(
        rule=Rule(
            name="same-data",
            group="numbers",
            subject="ranks",
            symptom="More ranks do not make the training learn faster.",
            evidence="`loss` of python.steps: equal to the last bit on all ranks in nine of ten"
            " steps, eight or more of them. Not judged where ranks are meant to have one batch:"
            " they reduce parts of sums inside of a model's forward, or gather outputs before the"
            " backward pass.",
            certainty="likely",
            gravity=69,
            fix="Give the loader a DistributedSampler, or each rank its own shards and seed.",
            source="https://pytorch.org/docs/stable/data.html",
            next='probing ENDPOINT query "SELECT step, rank, loss FROM python.steps'
            ' ORDER BY step DESC LIMIT 20"',
            look=of_several,
        ),
        look=_same_data,
    ),
    JobRule(
        rule=Rule(
            name="different-parameters",
            group="numbers",
            subject="ranks",
            symptom="Each rank has a model of its own, and the checkpoint is that of one.",
            evidence="Checksums of all parameters at the end of one step with the same"
            " collectives, of ranks that all reduce with each other and exchange neither messages"
            " nor parts (all_to_all), as for experts.",
            certainty="likely",
            gravity=71,
            fix="Broadcast the parameters of rank 0 once, or use DistributedDataParallel.",
            source="https://pytorch.org/docs/stable/notes/ddp.html",
            next="probing ENDPOINT diff",
            look=of_several,
            cost_s=3.0,
        ),
        look=_different_parameters,
    ),
    JobRule(
        rule=Rule(
            name="left-out-step",
            group="numbers",
            subject="ranks",
            symptom="The ranks drift apart, though their gradients are averaged.",
            evidence="`calls` of all_reduce by step, and `micro_batches`, of ranks that average"
            " gradients: one has those of two steps in one, where another has ended a step.",
            certainty="likely",
            gravity=72,
            fix="Decide alike on all ranks: all_reduce what the `if` before optimizer.step() asks"
            " for, or decide by what is averaged, such as the norm of the averaged gradients.",
            source="https://pytorch.org/docs/stable/notes/ddp.html",
            next='probing ENDPOINT query "SELECT rank, step, micro_batches FROM python.steps'
            ' ORDER BY step DESC LIMIT 20"',
            look=of_several,
        ),
        look=_left_out_step,
    ),
)
