"""Who has the lock that a rank waits for: named first, slow if it gets on, a hang if nobody can."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.diagnosis.hang import RankEvidence, Verdict, judge
from probing.diagnosis.hang.seen.doings import doing_of
from probing.diagnosis.hang.seen.work import work_between
from probing.messages.common import Awaited, Backtrace, Frame, ThreadStack, WorkDone
from probing.stacks.thread_waits import deadlock_text, deadlocks
from tests.unit.ranks.hang_samples import LATE, STILL_S, evidence, waiting_but

pytestmark = pytest.mark.anypython

MAIN, SAVER = 1, 2


def frame(func: str, lineno: int) -> Frame:
    """A frame of the job's."""
    return Frame(func=func, file="/job/train.py", lineno=lineno)


def held(holder: int, **facts: Any) -> Awaited:
    """A wait for a lock that a thread has."""
    how = {"is_settled": True, "has_limit": False, **facts}
    since = f"train.py:{10 * holder} in save"
    return Awaited(kind="lock", what="the lock self.lock", holder_id=holder, since=since, **how)


def trace(
    *, does: str = "running", cpu_s: float = 0.0, awaits: Awaited | None = None, **facts: Any
) -> Backtrace:
    """The main thread waits for a lock that the saver has, who does something."""
    main = ThreadStack(
        thread_id=MAIN, name="MainThread", is_main=True, frames=(frame("step", 30),),
        waiting="waiting for a lock", cpu_s=0.0, awaits=held(SAVER, **facts),
    )  # fmt: skip
    saver = ThreadStack(
        thread_id=SAVER, name="saver", is_main=False, frames=(frame("save", 40 + round(cpu_s)),),
        waiting=does, cpu_s=cpu_s, awaits=awaits,
    )  # fmt: skip
    work = WorkDone(time_s=cpu_s + 1.0)
    return Backtrace(pid=1, source="agent", threads=(main, saver), work=work)


def seen(first: Backtrace, second: Backtrace) -> dict[str, Any]:
    """What two looks make of it."""
    return {
        "doing": doing_of(first),
        "work": work_between(first, second),
        "deadlocks": tuple(map(deadlock_text, deadlocks(first.threads))),
    }


def of_job(**facts: Any) -> Verdict:
    """The verdict on a job in which the others wait for rank 0."""
    return judge(waiting_but({0: evidence(0, LATE, **facts)}), world=range(4))


def test_the_holder_is_named_first_with_its_line() -> None:
    """Who holds the lock since where, and what it does, comes before who waits for it."""
    verdict = of_job(**seen(trace(does="sleeping"), trace(does="sleeping")))
    assert verdict.is_hang
    assert verdict.causes[0].what == (
        'is held up by thread 2 "saver", which has held the lock self.lock since train.py:20 in'
        " save and is sleeping at train.py:40 in save; it waits for that, at train.py:30 in step"
    )


def test_a_holder_that_computes_makes_it_slow() -> None:
    """A lock that is held for long by a thread that gets on is no hang."""
    verdict = of_job(**seen(trace(), trace(cpu_s=1.0)))
    assert (verdict.kind, verdict.is_hang) == ("slow", False)
    assert "waiting for 15 s for a thread that computes (100 % of a processor)" in verdict.headline


def test_a_deadlock_is_a_hang_at_once() -> None:
    """Both lines are told, and nobody waits for the ten seconds."""
    both = trace(does="waiting for a lock", awaits=held(MAIN))
    facts = seen(both, both)
    verdict = of_job(**facts, still_s=3.0)
    assert verdict.is_hang
    assert "in a deadlock: thread 1" in verdict.causes[0].what
    assert {"train.py:10", "train.py:20"} <= set(verdict.causes[0].what.replace(",", "").split())


@pytest.mark.parametrize("ends", ["is_settled", "has_limit"])
def test_what_may_end_is_no_deadlock(ends: str) -> None:
    """A circle in which one wait has a limit, or was not seen at one moment, is none yet."""
    facts = {"has_limit": True} if ends == "has_limit" else {"is_settled": False}
    both = trace(does="waiting for a lock", awaits=held(MAIN, **facts))
    assert deadlocks(both.threads) == ()
    doing = doing_of(both)
    assert doing is not None
    assert not doing.is_deadlock


def alone(facts: dict[str, Any], **more: Any) -> RankEvidence:
    """A process of no job."""
    one = evidence(0, (), **facts, **more)
    return dataclasses.replace(one, rank=None, world_size=None)


def test_a_process_that_moves_is_told_of_other_threads_deadlock() -> None:
    """Where the record goes on, a deadlock beside it is a note and no hang."""
    both = trace(does="waiting for a lock", awaits=held(MAIN))
    moving = judge([alone(seen(both, both), moved=True, step=3)])
    assert (moving.kind, moving.is_hang) == ("healthy", False)
    assert moving.notes[0].startswith("Beside that there is a deadlock: thread 1")
    stuck = judge([alone(seen(both, both), moved=False, step=3, still_s=STILL_S)])
    assert stuck.is_hang
    assert stuck.headline.startswith("process ")


def test_how_sure_a_deadlock_is_is_told() -> None:
    """One that code alone tells of is most likely so."""
    both = trace(does="waiting for a lock", awaits=held(MAIN, is_certain=False), is_certain=False)
    verdict = judge([alone(seen(both, both), moved=False, step=3)])
    assert "is most likely in a deadlock: thread 1" in verdict.headline
    assert verdict.confidence.startswith("medium: ")
