"""Rules about the machine below a training: who else uses it, and what the kernel takes away.

Rules of this file: each is named by one `Rule` at the end. What is true of this moment is looked at
from the command's own machine; where the training is on another one, that is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np

from ....linux.host_memory import descendants, sql_workers
from ....linux.processors import Throttling, User, find_throttling, processor_times, users_between
from ....units import size
from ..facts import LEAST_STEPS, Facts, percent
from ..findings import Rule, Sign
from ..not_looked_at import NotLookedAt
from .pace.of_machine import processor_share

_LOOK_S = 1.0
_ROBBED = 1 / 3
"""Steps take three times as long as they would: less comes and goes on a machine that is shared."""
_THROTTLED = 0.25
_THROTTLED_EVER = 0.1
"""This part of all time: a command that has only just begun to use the quota is no cause."""
_NAMED = 3
_LARGE_USE = 0.1
_SWAPPED = 32 << 20
_SWAP_FAULTS_PER_S = 20.0


def _crowded(facts: Facts) -> Iterator[Sign]:
    """The training gets less of its processors than it wants."""
    now = facts.undisturbed.last()
    if len(now) < LEAST_STEPS:
        raise NotLookedAt(f"only {len(now)} steps were made before the command was started")
    share = processor_share(now)
    per_s = float(now.column("involuntary_switches", missing=0.0).sum()) / now.total_s
    if share >= _ROBBED or per_s < 20:  # a scheduler's slice is 3 to 50 ms
        return
    who = _others(facts)
    most = f": process {who[0].pid} ({who[0].command}) most" if who else ""
    yield Sign(
        certainty="possible",
        summary=f"Others use the training's processors: its thread has one for {percent(share)} of"
        f" the time{most}",
        evidence=(f"it is preempted {per_s:.0f} times a second", *_in_words(who)),
        weight=1 - share,
    )


def _others(facts: Facts) -> list[User]:
    """Who uses processors beside the training and this command; none where that is not seen."""
    try:
        pid = facts.pid_here()
        facts.live_time.need_turn()
    except NotLookedAt:
        return []
    seconds = time.monotonic() - facts.first.moment_s
    if seconds < _LOOK_S:
        time.sleep(_LOOK_S - seconds)
        seconds = _LOOK_S
    after = processor_times()
    command = descendants(os.getpid()) | {os.getpid(), os.getppid()}
    users = users_between(facts.first.processor_times, after, seconds, but=command | {pid})
    own = descendants(pid) | sql_workers(pid)
    return [
        user._replace(command=f"{user.command}, its own") if user.pid in own else user
        for user in users
        if user.processors >= _LARGE_USE
    ][:_NAMED]


def _in_words(users: list[User]) -> list[str]:
    return [
        f"process {user.pid} ({user.command}) uses {user.processors:.1f} processors now"
        for user in users
    ]


def _throttled(facts: Facts) -> Iterator[Sign]:
    """The kernel stops the training's threads, since their cgroup has used up its quota."""
    pid = facts.pid_here()
    before = find_throttling(pid, proc=facts.proc)
    if before is None or before.share < _THROTTLED_EVER:
        return
    facts.live_time.need_turn()
    time.sleep(_LOOK_S)
    after = find_throttling(pid, proc=facts.proc) or before
    yield from throttled_between(before, after)


def throttled_between(before: Throttling, after: Throttling) -> Iterator[Sign]:
    """What two looks at one cgroup show."""
    periods, throttled = after.periods - before.periods, after.throttled - before.throttled
    if periods <= 0 or throttled < _THROTTLED * periods:
        return
    quota = f" of {after.processors:.3g} processors" if after.processors is not None else ""
    share = throttled / periods
    yield Sign(
        certainty="certain",
        summary=f"The kernel holds the training back: its cgroup has used up its quota{quota} in"
        f" {percent(share)} of all periods, and stands still for the rest of each",
        evidence=(
            f"nr_throttled of cpu.stat: {throttled} of {periods} periods in the last"
            f" {_LOOK_S:.0f} s, {percent(after.share)} since the cgroup was made",
        ),
        weight=share,
    )


def _swapping(facts: Facts) -> Iterator[Sign]:
    """Pages of the training are read back from swap."""
    now = facts.now()
    faults = float(now.column("major_faults", missing=0.0).sum()) / now.total_s
    often = float(np.mean(now.column("major_faults", missing=0.0) > 0))
    if faults < _SWAP_FAULTS_PER_S or often < 0.5:
        return
    rows = facts.live("host_memory")
    trainer = next((row for row in rows if row["role"] == "trainer"), None)
    swapped = (trainer and trainer["swap_bytes"]) or 0
    if swapped < _SWAPPED:
        return  # it reads a file that it has mapped
    yield Sign(
        certainty="likely",
        summary=f"The training is swapped out: it waits {faults:.0f} times a second for pages to be"
        f" read, and {size(swapped)} of it are in swap",
        evidence=(
            f"`major_faults` of python.steps: in {percent(often)} of {len(now)} steps",
            *(
                f"process {row['pid']} ({row['name']}) has {size(row['private_bytes'] or 0)}"
                for row in sorted(rows, key=lambda row: -(row["private_bytes"] or 0))[:_NAMED]
            ),
        ),
        weight=min(1.0, faults / 1000),
    )


RULES = (
    Rule(
        name="throttled",
        group="slow",
        subject="processors",
        symptom="Steps take several times as long as their processor time, at regular intervals.",
        evidence="`nr_throttled` and `nr_periods` of cpu.stat, of the cgroups around the process:"
        f" {percent(_THROTTLED)} of the periods of one second, and of all since the cgroup was made"
        f" {percent(_THROTTLED_EVER)}.",
        certainty="certain",
        gravity=46,
        fix="Raise the quota (`cpu.max`, resources.limits.cpu, --cpus), or use as few threads as it"
        " has processors: OMP_NUM_THREADS, num_workers.",
        source="https://docs.kernel.org/scheduler/sched-bwc.html",
        next='probing ENDPOINT query "SELECT step, duration, cpu_s, process_cpu_s'
        ' FROM python.steps ORDER BY step DESC LIMIT 20"',
        look=_throttled,
        cost_s=1.0,
    ),
    Rule(
        name="swapping",
        group="slow",
        subject="memory",
        symptom="All of a step takes many times as long, and the disk is busy.",
        evidence=f"`major_faults` of python.steps: {_SWAP_FAULTS_PER_S:.0f} a second, in half of"
        " the last 100 steps; and 32 MiB or more of the trainer in swap. Without the latter it"
        " reads files that it has mapped.",
        certainty="likely",
        gravity=49,
        fix="Give it more memory, or take less: fewer workers, smaller batches, or end what else"
        " runs there.",
        source="https://docs.kernel.org/admin-guide/mm/concepts.html",
        next='probing ENDPOINT query "SELECT pid, role, name, private_bytes, swap_bytes'
        ' FROM python.host_memory"',
        look=_swapping,
    ),
    Rule(
        name="crowded-processors",
        group="slow",
        subject="processors",
        symptom="All of a step takes longer than on an idle machine.",
        evidence=(
            "`cpu_s` and `involuntary_switches` of python.steps: the training thread has a"
            " processor for less than a third of what it does not wait, and is preempted. Not told"
            " beside what is likely or certain."
        ),
        certainty="possible",
        gravity=20,
        fix="Give the training processors of its own: taskset, cpuset, --cpus-per-task.",
        next='probing ENDPOINT query "SELECT step, duration, cpu_s, process_cpu_s,'
        ' involuntary_switches FROM python.steps ORDER BY step DESC LIMIT 20"',
        look=_crowded,
        cost_s=1.0,
    ),
)
