"""What `probing hang` says of a job whose ranks end one after the other, as they should."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.diagnosis.hang import Call, Group, RankEvidence, Verdict, judge
from probing.diagnosis.hang.evidence import Work
from probing.postmortem.endings import Way
from tests.unit.ranks.hang_samples import (
    SAVING,
    SECOND,
    WAITING,
    call,
    evidence,
    history,
    waiting,
    waiting_but,
)

pytestmark = pytest.mark.anypython

LATE = history(40)
ORDERLY = "it ended in an orderly way: its agent was told of the end"
WRITES = Work(cpu=0.9, written_rate=1e8, is_ready=True)
PAIR = Group(name="7", size=2, ranks=(0, 1))


def done(rank: int, calls: tuple[Call, ...] = LATE, way: Way | None = "orderly") -> RankEvidence:
    """A rank that has ended."""
    ending = ORDERLY if way == "orderly" else "it ended"
    return evidence(
        rank, calls, state="dead", moved=None, doing=None, ending=ending, way=way, ended_ns=rank
    )  # fmt: skip


def judged(first: RankEvidence, *others: RankEvidence) -> Verdict:
    """The verdict on rank 0 and those that have ended; the others have done so as they should."""
    ranks = {rank: done(rank) for rank in range(4)} | {0: first}
    ranks |= {e.rank: e for e in others if e.rank is not None}
    return judge(list(ranks.values()))


@pytest.mark.parametrize(("still_s", "facts", "kind"), [
    (1.5, {}, "healthy"), (3.0, {}, "unknown"), (30.0, {}, "slow"),
    (3.0, {"moved": True}, "healthy"),
])  # fmt: skip
def test_the_last_checkpoint(still_s: float, facts: dict[str, Any], kind: str) -> None:
    """Rank 0 saves when the others have ended: that is no hang, however long it writes."""
    verdict = judged(evidence(0, LATE, doing=SAVING, work=WRITES, still_s=still_s, **facts))
    assert (verdict.kind, verdict.is_hang) == (kind, False), verdict.headline
    assert f"Rank 3 has ended: {ORDERLY}." in verdict.notes


def test_others_train_on() -> None:
    """A group that is left waits for its own members, not for a rank that is done."""
    pair = [
        evidence(0, (*LATE, call(1, group="7", is_open=True, age_s=1.0)), doing=WAITING),
        evidence(1, LATE),
    ]
    pair = [dataclasses.replace(e, still_s=1.0, groups=(*e.groups, PAIR)) for e in pair]
    assert judged(*pair).kind == "healthy"
    late = judged(*(dataclasses.replace(e, still_s=5.0) for e in pair))
    assert (late.kind, [c.rank for c in late.causes], late.is_hang) == ("missing", [1], False)


def test_what_differed_before_it_was_over() -> None:
    """Collectives that differ, and that all ranks came out of, are nobody's concern any more."""
    other = tuple(dataclasses.replace(c, dtypes="float16") for c in LATE)
    saving = evidence(0, LATE, doing=SAVING, work=WRITES, still_s=3.0)
    assert not judged(saving, done(3, other)).is_hang
    ended = judged(done(0), done(3, other))
    assert (ended.kind, ended.ended_well) == ("ended", True)


def test_a_rank_that_is_needed_still() -> None:
    """Who ends before a collective of others, or in it, is the cause, however orderly its end."""
    opened = call(41, is_open=True, age_s=3.0)
    waits = evidence(0, (*LATE, opened), doing=WAITING, still_s=3.0)
    for rank in (done(2), done(2, (*LATE, opened))):
        others = [done(other, (*LATE, call(41))) for other in (1, 3)]
        verdict = judged(waits, rank, *others)
        found = verdict.kind, verdict.is_hang, [c.rank for c in verdict.causes]
        assert found == ("dead", True, [2]), verdict.headline


def test_a_rank_that_ends_in_failure() -> None:
    """One that did not end in an orderly way is told of at once."""
    verdict = judged(evidence(0, LATE, still_s=3.0), done(2, way="left"))
    assert (verdict.kind, [c.rank for c in verdict.causes]) == ("dead", [2])


def test_without_a_record_of_collectives() -> None:
    """Who is seen to wait for others for long, and not for whom, waits for those that ended."""
    ranks = [dataclasses.replace(done(rank), calls=(), groups=()) for rank in range(1, 4)]
    first = evidence(0, (), groups=(), doing=WAITING)
    assert judged(first, *ranks).kind == "dead"
    assert not judged(dataclasses.replace(first, still_s=3.0), *ranks).is_hang


@pytest.mark.parametrize("is_over", [True, False], ids=["all have ended", "others wait"])
def test_only_what_answers_is_advised_of_a_rank_that_has_ended(*, is_over: bool) -> None:
    """Its last stack where it left one, else its last steps, and nothing of who made none."""
    killed: Any = {"state": "dead", "moved": None, "doing": None, "way": "wordless"}
    others = [
        dataclasses.replace(done(rank), ended_ns=None) if is_over else waiting(rank)
        for rank in (0, 1, 3)
    ]
    looks = []
    for left in ({}, {"has_stack": False}, {"has_stack": False, "step": None}):
        facts = killed | left
        verdict = judge([*others, evidence(2, history(39), **facts)])
        assert [cause.rank for cause in verdict.causes] == [2], verdict.headline
        looks.append([step for step in verdict.next_steps if step.startswith("`probing -t 4102 ")])
    assert looks == [
        ["`probing -t 4102 backtrace`: where it was."],
        ['`probing -t 4102 query "FROM steps ORDER BY step DESC LIMIT 5"`: its last steps.'],
        [],
    ]


def test_a_line_of_evidence_comes_once() -> None:
    """Whatever was told twice on the way to it."""
    twice = evidence(2, history(39), state="dead", doing=None, notes=("x", "x"))
    verdict = judge([*(waiting(rank) for rank in (0, 1, 3)), twice])
    (cause,) = verdict.causes
    assert len(cause.evidence) == len(set(cause.evidence))


def test_of_two_that_ended_in_one_tick_none_is_called_the_first() -> None:
    """The clock that dates files goes on in ticks: within one, nobody knows who came first."""
    ends = {0: 5, 1: 5, 2: 6, 3: 6}
    ranks = [
        dataclasses.replace(done(rank, way=None), ended_ns=when) for rank, when in ends.items()
    ]
    verdict = judge(ranks)
    assert [cause.rank for cause in verdict.causes] == [0, 1]
    assert verdict.victims == (2, 3)


@pytest.mark.parametrize("waited_s", [1, 900])
def test_ranks_that_one_sender_has_asked_to_end(waited_s: int) -> None:
    """As a launcher or a scheduler does: a rank that others had waited for is named if for long."""
    asked: dict[str, Any] = {
        "state": "dead", "moved": None, "doing": None, "died_of_peers": True, "asked_by": "slurmd",
        "is_terminated": True, "ending": "it was asked to end by a SIGTERM of process 7 (slurmd)",
        "ended_ns": (41 + waited_s) * SECOND,
    }  # fmt: skip
    ranks = waiting_but({2: evidence(2, LATE)})
    verdict = judge([dataclasses.replace(e, **asked) for e in ranks])
    assert [cause.rank for cause in verdict.causes] == ([2] if waited_s == 900 else [])
    assert verdict.is_terminated
    assert ("each was asked to end by a SIGTERM" in verdict.headline) == (waited_s == 1)
