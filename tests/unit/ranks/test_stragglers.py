"""Who holds up a job, told from tables with a known answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from probing.cli.render.ranks.stragglers import render_stragglers
from probing.cluster.ranks.slow.clocks import align_clocks
from probing.cluster.ranks.slow.reasons import reasons
from probing.cluster.ranks.slow.stragglers import find_stragglers
from probing.cluster.ranks.slow.times import DeviceStep, RankTimes
from tests.unit.ranks.rank_samples import ddp_job

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize("waits", ["blocked", "sync", "arrival"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_slow_backward_is_found_though_all_steps_take_equally_long(
    ranks: int, waits: str
) -> None:
    """The rank with 200 ms more in backward is the only one blamed, with phase, time and place."""
    job = ddp_job(ranks, extra_s=lambda rank, _: 0.2 if rank == 1 else 0.0, waits=waits)
    durations = [step.duration_s for one in job for step in one.steps]
    assert max(durations) < 1.1 * min(durations)
    report = find_stragglers(job)
    (found,) = report.stragglers
    assert found.rank == 1
    assert found.excess_s == pytest.approx(0.2, abs=0.01)
    assert (found.slow_steps, found.steps) == (20, 20)
    assert (found.last_in, found.collectives) == (20, 20)
    assert found.late_s == pytest.approx(0.2, abs=0.01)
    worst = max(found.phases, key=lambda phase: found.phases[phase])
    assert worst == "backward"
    assert found.phases["backward"] == pytest.approx(0.2, abs=0.01)
    assert found.phases["forward"] < 0.01


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_noise_alone_makes_nobody_a_straggler(ranks: int, seed: int) -> None:
    """Ranks that differ by chance are told healthy, and by how much they differ is told."""
    report = find_stragglers(ddp_job(ranks, noise_s=0.004, seed=seed))
    assert report.stragglers == ()
    assert report.spread_s is not None
    assert 0.0005 < report.spread_s < 0.02


def test_processes_of_no_job_are_not_compared() -> None:
    """Two trainings that only run on one machine do unlike work: neither holds up the other."""
    job = ddp_job(3, extra_s=lambda rank, _: 0.2 if rank == 1 else 0.0)
    loose = [dataclasses.replace(one, rank=f"pid {4000 + one.rank}", collectives=()) for one in job]  # type: ignore[operator]
    report = find_stragglers(loose)
    assert report.stragglers == ()
    assert report.alone == ("pid 4000", "pid 4001", "pid 4002")
    named = find_stragglers([dataclasses.replace(one, job="one") for one in loose])
    assert named.cohorts == (report.alone,)


def test_a_rank_that_trains_is_not_compared_with_one_that_only_evaluates() -> None:
    """It has more to do in each step, and nobody waits for it."""
    job = [dataclasses.replace(one, collectives=()) for one in ddp_job(4)]
    for one in (2, 3):
        steps = [
            dataclasses.replace(s, duration_s=0.03, phases={"forward": 0.03})
            for s in job[one].steps
        ]
        job[one] = dataclasses.replace(job[one], steps=tuple(steps), spans=())
    report = find_stragglers(job)
    assert report.stragglers == ()
    assert report.cohorts == ((0, 1), (2, 3))
    assert find_stragglers([job[0], job[2]]).alone == (0, 2)


def on_devices(job: list[RankTimes], *, ranks: int) -> list[RankTimes]:
    """The same, where devices do the collectives and the hosts only queue them.

    All steps take equally long on all ranks, and no host has waited for another.
    """
    found = []
    for one in job:
        steps, collectives = [], []
        for step, c in zip(one.steps, one.collectives, strict=True):
            assert c.end_ns is not None
            took_s = (c.end_ns - c.start_ns) * 1e-9
            steps.append(
                DeviceStep(
                    step=step.step,
                    device_s=step.duration_s,
                    phases={"forward": 0.01, "other": step.duration_s - 0.01},
                    took_s={(c.group, c.seq): (took_s, ranks)},
                )
            )
            collectives.append(dataclasses.replace(c, blocked_s=1e-5, is_async=False))
        plain = tuple(
            dataclasses.replace(s, phases=d.phases, device_s=d.device_s)
            for s, d in zip(one.steps, steps, strict=True)
        )
        found.append(
            dataclasses.replace(
                one, steps=plain, collectives=tuple(collectives), device_steps=tuple(steps)
            )
        )
    return found


def test_a_slow_device_is_found_though_no_host_waits() -> None:
    """By what devices take for collectives: the least of all ranks is the transfer."""
    job = ddp_job(4, extra_s=lambda rank, _: 0.2 if rank == 1 else 0.0)
    hidden = [dataclasses.replace(one, device_steps=()) for one in on_devices(job, ranks=4)]
    unknown = find_stragglers(hidden)
    assert unknown.stragglers == ()
    report = find_stragglers(on_devices(job, ranks=4))
    (found,) = report.stragglers
    assert (found.rank, report.on_device) == (1, True)
    assert found.excess_s == pytest.approx(0.2, abs=0.01)
    assert found.blocked_s == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("what", ["a rank", "one of several"])
def test_where_the_wait_on_devices_is_not_known_that_is_said(what: str) -> None:
    """Of what some rank has not timed, or of a collective whose program waits elsewhere for it."""
    job = on_devices(ddp_job(3), ranks=3)
    hidden: tuple[DeviceStep, ...] = ()
    if what == "one of several":  # as the gradients' beside one that is logged
        hidden = tuple(
            dataclasses.replace(step, took_s={**step.took_s, ("0", 1000 + step.step): (None, 3)})
            for step in job[2].device_steps
        )
    job[2] = dataclasses.replace(job[2], device_steps=hidden)
    job = [
        dataclasses.replace(
            one,
            collectives=tuple(
                dataclasses.replace(c, blocked_s=None, is_async=True) for c in one.collectives
            ),
        )
        for one in job
    ]
    report = find_stragglers(job)
    assert (report.on_device, report.stragglers) == (False, ())
    shown = render_stragglers(report, width=None, color=False)
    assert "times include that waiting" in shown


def test_one_slow_step_makes_no_straggler() -> None:
    """A rank that needs a second more in one step of twenty is not blamed for it."""
    report = find_stragglers(
        ddp_job(extra_s=lambda rank, step: 1.0 if (rank, step) == (1, 9) else 0.0)
    )
    assert report.stragglers == ()
    assert [pace.slow_steps for pace in report.ranks] == [0, 1, 0, 0]
    assert not any(pace.is_slow_at_times for pace in report.ranks)


def test_a_rank_that_is_slow_at_times_is_told_apart() -> None:
    """Every fifth step slow is told, with its excess in those steps, and is no straggler."""
    report = find_stragglers(
        ddp_job(extra_s=lambda rank, step: 0.4 if rank == 3 and step % 5 == 0 else 0.0)
    )
    assert report.stragglers == ()
    (found,) = [pace for pace in report.ranks if pace.is_slow_at_times]
    assert (found.rank, found.slow_steps) == (3, 4)
    assert found.excess_s == pytest.approx(0.4, abs=0.01)


def test_a_rank_that_may_be_slow_is_said_not_to_be_certain() -> None:
    """Where steps vary by as much as a rank is behind, neither "straggler" nor "none" is said."""
    noisy = find_stragglers(
        ddp_job(3, noise_s=0.06, extra_s=lambda rank, _: 0.06 if rank == 2 else 0.0)
    )
    assert noisy.stragglers == ()
    told = render_stragglers(noisy, width=110, color=False).splitlines()[0]
    assert told.startswith("no straggler is certain: rank 2 needs ")
    calm = find_stragglers(ddp_job(3, noise_s=0.001))
    told = render_stragglers(calm, width=110, color=False).splitlines()[0]
    assert told.startswith("no straggler: the ranks' own times per step are at most ")


def test_a_slow_host_is_named() -> None:
    """Where all ranks of one host are slow, and no others, the host is named; half is enough."""
    job = ddp_job(8, hosts=2, extra_s=lambda rank, _: 0.1 if rank >= 4 else 0.0)
    report = find_stragglers(job)
    assert [pace.rank for pace in report.ranks if pace.is_straggler] == [4, 5, 6, 7]
    assert report.slow_hosts == ("node1",)
    assert report.slow_devices == ()


def test_a_slow_device_is_named() -> None:
    """Where the same device is slow on every host, its number is named."""
    job = ddp_job(8, hosts=4, extra_s=lambda rank, _: 0.1 if rank % 2 == 1 else 0.0)
    report = find_stragglers(job)
    assert report.slow_devices == (1,)
    assert report.slow_hosts == ()


def test_clocks_of_hosts_are_aligned_by_the_ends_of_collectives() -> None:
    """Clocks that are 5 s apart blame nobody, and the offset is found to the millisecond."""
    offsets = [0.0, 5.0, -2.0]
    extra = 0.05
    job = ddp_job(
        6, hosts=3, clock_s=lambda host: offsets[host],
        extra_s=lambda rank, _: extra if rank == 5 else 0.0,
    )  # fmt: skip
    clocks = align_clocks(job)
    assert clocks.offsets_s["node1"] - clocks.offsets_s["node0"] == pytest.approx(5.0, abs=1e-3)
    assert clocks.offsets_s["node2"] - clocks.offsets_s["node0"] == pytest.approx(-2.0, abs=1e-3)
    assert clocks.error_s is not None
    assert clocks.error_s < 1e-3
    (found,) = find_stragglers(job).stragglers
    assert found.rank == 5
    assert found.late_s == pytest.approx(extra, abs=0.01)


def test_the_stages_of_a_pipeline_are_not_compared() -> None:
    """Ranks that take part in other kinds of collectives are another cohort."""
    heavy = ddp_job(8, extra_s=lambda rank, _: 0.2 if rank >= 6 else 0.0)
    import dataclasses

    staged = [
        dataclasses.replace(
            one,
            collectives=tuple(
                dataclasses.replace(c, group=f"dp{one.rank // 6}", size=6 if one.rank < 6 else 2)
                for c in one.collectives
            ),
        )
        for one in heavy
        if isinstance(one.rank, int)
    ]
    report = find_stragglers(staged)
    assert report.cohorts == (tuple(range(6)), (6, 7))
    assert report.stragglers == ()


def test_nothing_told_is_nothing_found() -> None:
    """Ranks without a step give an empty report, and two steps are too few to blame anybody."""
    assert find_stragglers([]).ranks == ()
    few = ddp_job(steps=2, extra_s=lambda rank, _: 0.5 if rank == 1 else 0.0)
    assert find_stragglers(few).stragglers == ()


QUIET = {"cpu_s": 0.1, "gc_s": 0.0, "voluntary_switches": 5.0, "involuntary_switches": 1.0}
CAUSES = {
    "garbage": ({"gc_s": 0.15, "cpu_s": 0.25}, "garbage collection took 150 ms more"),
    "computing": ({"cpu_s": 0.3}, "its thread computed for 200 ms more"),
    "taken": ({"involuntary_switches": 41.0}, "taken from its thread 40 times more, for 200 ms"),
    "longer waits": ({}, "did not compute for 200 ms more, in no more waits than the others"),
    "taken too seldom": ({"involuntary_switches": 3.0}, "did not compute for 200 ms more"),
    "paged": ({"major_faults": 300.0, "cpu_s": 0.3}, "300 more page faults were read from a disk"),
    "waiting": ({"voluntary_switches": 9.0}, None),
}


def counted_job(costs: Mapping[str, float], *, older: bool = False) -> list[RankTimes]:
    """Rank 1 has 200 ms more in backward, and counts these costs; with `older`, rank 0 none."""
    job = ddp_job(4, extra_s=lambda rank, _: 0.2 if rank == 1 else 0.0)
    quiet = {**QUIET, "major_faults": 0.0}

    def counts(rank: object) -> dict[str, float]:
        return {**quiet, **costs} if rank == 1 else {} if older and rank == 0 else quiet

    return [
        dataclasses.replace(
            one,
            steps=tuple(dataclasses.replace(step, costs=counts(one.rank)) for step in one.steps),
        )
        for one in job
    ]


@pytest.mark.parametrize("cause", CAUSES)
def test_what_the_extra_time_comes_of_has_a_name(cause: str) -> None:
    """Garbage, computing, a processor taken away, longer waits and paging are told apart."""
    costs, words = CAUSES[cause]
    (found,) = find_stragglers(counted_job(costs)).stragglers
    said = "; ".join(reasons(found))
    assert words is None or words in said
    assert (words is None) == (said == "")


def test_what_not_every_rank_has_counted_is_not_compared() -> None:
    """With a rank of an older version among them, nothing is said of causes."""
    (found,) = find_stragglers(counted_job({"gc_s": 0.15}, older=True)).stragglers
    assert (found.costs, list(reasons(found))) == ({}, [])


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_is_always_the_last_is_slow_though_times_vary(seed: int) -> None:
    """Its steps are no outliers; that it is the slowest step after step is no chance."""
    job = ddp_job(3, extra_s=lambda rank, _: 0.08 if rank == 1 else 0.0, noise_s=0.03, seed=seed)
    report = find_stragglers(job)
    (found,) = report.stragglers
    assert (found.rank, found.steps) == (1, 20)
    assert found.z < 3.5
    assert found.slow_steps >= 18
    a_little = ddp_job(
        3, extra_s=lambda rank, _: 0.02 if rank == 1 else 0.0, noise_s=0.03, seed=seed
    )
    assert find_stragglers(a_little).stragglers == ()
