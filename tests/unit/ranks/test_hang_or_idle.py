"""Processes that stand still for a good reason, each beside one that hangs in the same way."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.cli.render.ranks.hang import render_verdict
from probing.cluster.job.membership import Member
from probing.diagnosis.hang import Doing, RankEvidence, Work, judge
from probing.diagnosis.hang.seen.collection import NEWEST, Stacks, evidence_of
from probing.messages.card import Card
from probing.messages.common import Backtrace
from tests.harness.cards import card_of
from tests.unit.doctor.made import MadeProcess, steps
from tests.unit.ranks.hang_samples import LATE, STILL_S, evidence, waiting, waiting_but

pytestmark = pytest.mark.anypython

RUNNING = Doing(kind="python", words="runs Python code", where="train.py:40 in score")
LOCKED = Doing(kind="lock", words="is in a deadlock", where="a.py:2 in f", is_deadlock=True)


def alone(**facts: Any) -> RankEvidence:
    """A process of no job that has stood still for ten minutes."""
    plain = evidence(0, (), world_size=None, groups=(), still_s=700.0, doing=RUNNING)
    return dataclasses.replace(plain, rank=None, **facts)


class Carded(MadeProcess):
    """Answers with rows, and with a card."""

    card = card_of(1, 1)

    def status(self) -> Card:
        """Who it is."""
        return self.card


def test_a_process_that_is_not_recorded() -> None:
    """That its record stands still says nothing of it; what no time heals is a hang."""
    verdict = judge([alone(is_paused=True, work=Work(cpu=1.0))])
    assert (verdict.kind, verdict.is_hang, verdict.still_s) == ("process", False, None)
    assert verdict.headline == (
        "process 4100 runs Python code, at train.py:40 in score. Nothing tells whether it gets on:"
        " its recording is off (`config recording=1` turns it on)."
    )
    assert judge([alone()]).is_hang
    for facts in ({"state": "stopped"}, {"doing": LOCKED}):
        assert judge([alone(is_paused=True, **facts)]).is_hang


def test_ranks_that_are_not_recorded() -> None:
    """Whoever is in no collective just then is not missing from it."""
    off = [dataclasses.replace(e, is_paused=True, calls=()) for e in waiting_but({})]
    off[2] = evidence(2, (), is_paused=True, doing=RUNNING)
    verdict = judge(off)
    assert (verdict.kind, verdict.is_hang, verdict.causes) == ("unknown", False, ())
    assert render_verdict(verdict, width=100).startswith("UNKNOWN: Ranks 0-1,3: waiting for")
    assert verdict.headline.endswith(
        "rank 2: runs Python code, at train.py:40 in score. Nothing tells whether ranks 0-3 get on:"
        " their recording is off (`config recording=1` turns it on)."
    )
    for facts in ({"state": "stopped"}, {"state": "dead", "moved": None}, {"doing": LOCKED}):
        gone = judge([*off[:2], dataclasses.replace(off[2], **facts), off[3]])
        assert gone.is_hang
        assert [cause.rank for cause in gone.causes] == [2]


def test_one_rank_that_is_not_recorded() -> None:
    """The others tell whether the job goes on, and it is not named as the one who is missing."""
    off = evidence(2, (), is_paused=True, doing=RUNNING, still_s=700.0)
    verdict = judge(waiting_but({2: off}))
    assert (verdict.kind, verdict.is_hang, verdict.causes) == ("unknown", True, ())
    assert verdict.still_s == STILL_S
    assert "Nothing tells whether rank 2 gets on: its recording is off" in verdict.headline
    moving = [dataclasses.replace(waiting(rank), moved=True) for rank in (0, 1, 3)]
    assert judge([*moving, off]).kind == "healthy"
    assert judge(waiting_but({2: evidence(2, LATE)})).causes[0].rank == 2


@pytest.mark.parametrize("is_recording", [True, False])
def test_the_card_tells_whether_a_process_is_recorded(is_recording: bool) -> None:
    """Only of a record that does not grow; calls that were open as recording ended say nothing."""
    opened = {"process_group": "0", "seq": 1, "op": "all_reduce", "is_async": False, "start_ns": 1}
    process: Any = Carded({"steps": steps(3), "collectives": [opened]}, {})
    process.card = card_of(1, 1, is_recording=is_recording)
    member = Member(rank=None, host="here", pid=1, world_size=None, endpoint="1")
    stacks = Stacks(state="answering", trace=Backtrace(pid=1, source="agent", threads=()))
    row = process.query(NEWEST).to_pylist()[0]
    newest = (row["newest_ns"], row["ended_ns"], row["done"])
    found = evidence_of(process, member, newest, stacks)
    assert (found.moved, found.is_paused) == (False, not is_recording)
    assert len(found.calls) == int(is_recording)
    moving = evidence_of(process, member, (0, 0, 0), stacks)
    assert (moving.moved, moving.is_paused, len(moving.calls)) == (True, False, 1)
