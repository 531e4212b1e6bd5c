"""How `probing hang` compares what ranks have called, and pairs their messages."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.diagnosis.hang import Call, RankEvidence, Verdict, judge
from probing.diagnosis.hang.evidence import Work
from tests.unit.ranks.hang_samples import (
    LOADING,
    SAVING,
    STILL_S,
    WAITING,
    call,
    evidence,
    history,
    waiting,
)

pytestmark = pytest.mark.anypython

LATE = history(40)


def with_shapes(shapes: str, *, is_open: bool = False) -> list[RankEvidence]:
    """Three ranks that wait for rank 1, which brought a tensor of another shape once."""
    at = 41 if is_open else 35
    own = call(at, shapes=shapes, is_open=is_open)
    calls = tuple(own if c.seq == at else c for c in (*LATE, call(41)))
    odd = evidence(1, calls, doing=WAITING) if is_open else evidence(1, calls[:-1])
    return [odd, *(waiting(rank) for rank in (0, 2, 3))]


@pytest.mark.parametrize("shapes", ["[8192]", "[128,64]", "[1,64,128]"])
def test_as_many_elements_in_another_shape(shapes: str) -> None:
    """Backends reduce them all the same: it is no mismatch, and the late rank is named."""
    verdict = judge(with_shapes(shapes))
    assert (verdict.kind, [c.rank for c in verdict.causes]) == ("missing", [1]), verdict.headline


def test_a_number_and_a_tensor_of_one() -> None:
    """A flag is `[]` on one rank and `[1]` on another."""
    ranks = with_shapes("[]")
    ranks = [
        dataclasses.replace(e, calls=tuple(
            dataclasses.replace(c, shapes="[1]") if c.seq == 35 and e.rank != 1 else c
            for c in e.calls
        ))
        for e in ranks
    ]  # fmt: skip
    assert judge(ranks).kind == "missing"


@pytest.mark.parametrize("shapes", ["[]", "[8193]", "[64,128];[1]", "[0]"])
@pytest.mark.parametrize("is_open", [False, True])
def test_another_number_of_elements(shapes: str, is_open: bool) -> None:
    """That is a mismatch, in whatever shape, and shown with its shapes."""
    verdict = judge(with_shapes(shapes, is_open=is_open))
    assert (verdict.kind, [c.rank for c in verdict.causes]) == ("mismatch", [1]), verdict.headline
    assert f"all_reduce {shapes} float32" in verdict.headline


def message(op: str, peer: int | None, *, is_async: bool = False, **other: Any) -> Call:
    """A message under way, `recv` or `send`."""
    facts: dict[str, Any] = {"reduce_op": None, "is_open": True, "age_s": STILL_S, **other}
    return call(facts.pop("seq", 9), op=op, peer=peer, is_async=is_async, **facts)


def judged(*calls: tuple[Call, ...], **facts: Any) -> Verdict:
    """The verdict on ranks in these messages; who is in none is in the loader."""
    ranks = [
        evidence(rank, (*LATE, *own), doing=WAITING if own else LOADING, **facts)
        for rank, own in enumerate(calls)
    ]
    return judge(ranks)


def named(verdict: Verdict) -> tuple[str, list[int | None]]:
    """What is the matter, and with whom."""
    return verdict.kind, [cause.rank for cause in verdict.causes]


def test_messages_in_a_circle() -> None:
    """A send to a third rank is not what a rank waits for that receives of it."""
    found = judged(
        (message("recv", 1),), (message("send", 2),), (message("recv", 0),), (message("recv", 0),)
    )
    assert named(found) == ("deadlock", [0, 1, 2]), found.headline


@pytest.mark.parametrize("still_s", [3.0, 30.0])
def test_a_ring_of_messages(still_s: float) -> None:
    """Ranks that all send to the next one and receive of the one before wait for nobody."""
    ring = [
        (message("send", (rank + 1) % 4, is_async=True),
         message("recv", (rank - 1) % 4, is_async=True))
        for rank in range(4)
    ]  # fmt: skip
    found = judged(*ring, still_s=still_s)
    assert named(found) == ("same_collective", []), found.headline
    assert found.is_hang is (still_s > 10)
    assert "rank 1 in group 0" in found.headline
    assert "its other side has come to it" in found.headline
    found = judged(*ring[:3], ())
    assert named(found) == ("missing", [3]), found.headline


def test_a_message_that_was_taken() -> None:
    """One that its peer has received holds nobody up, though its sender has not asked for it."""
    sent = message("send", 1, is_async=True)
    taken = message("recv", 0, is_open=False, age_s=10)
    found = judged((sent, message("recv", 2)), (taken, message("recv", 3)), (), ())
    assert named(found) == ("missing", [2, 3]), found.headline
    found = judged((sent, message("recv", 2)), (message("recv", 3),), (), (message("recv", 0),))
    assert named(found) == ("missing", [2]), found.headline


def test_a_message_from_any_rank() -> None:
    """Whoever is free may be the one to send it, and who waits for the receiver itself is not."""
    anybody = (message("recv", None),)
    found = judged(anybody, (), (message("recv", 0),), ())
    assert named(found) == ("missing", [1, 3]), found.headline
    assert "have not sent what rank 0 has waited for, in recv in group 0" in found.headline
    assert found.confidence.startswith("medium: a message of any of them")
    found = judged(anybody, *[(message("recv", 0),)] * 3)
    assert named(found)[0] == "deadlock", found.headline
    found = judged(anybody, (message("send", 0),), (), ())
    assert named(found) == ("same_collective", []), found.headline


def piped(numbers: range, *, is_open: bool, group: str = "0", **facts: Any) -> Verdict:
    """Rank 2 waits for 1, and 1 for message 13 of 0, which has begun these and is in own code."""
    sent = tuple(
        message("send", 1, seq=seq, is_async=True, is_open=is_open, group=group) for seq in numbers
    )
    sender = evidence(0, (*LATE, *sent), **facts)
    receiver = evidence(1, (*LATE, message("recv", 0, seq=13)), doing=WAITING)
    behind = evidence(2, (*LATE, message("recv", 1)), doing=WAITING)
    return judge([sender, receiver, behind])


@pytest.mark.parametrize("is_open", [False, True])
def test_a_sender_that_is_stuck(is_open: bool) -> None:
    """Earlier messages were taken, be they open on record still, and others go in another group."""
    for found in (
        piped(range(1, 13), is_open=is_open),
        piped(range(5, 21), is_open=is_open, group="7"),
    ):
        assert named(found) == ("missing", [0]), found.headline


@pytest.mark.parametrize("is_open", [False, True])
def test_messages_that_are_counted_apart(is_open: bool) -> None:
    """Where one agent came first, its numbers are ahead: nobody is blamed for them."""
    found = piped(range(5, 21), is_open=is_open)
    assert named(found) == ("unknown", []), found.headline
    assert "which by its number rank 0 has sent; rank 0 is in the DataLoader" in found.headline
    assert found.confidence.startswith("low")
    works = Work(written_rate=1e8, is_ready=True)
    found = piped(range(5, 21), is_open=is_open, doing=SAVING, work=works)
    assert (*named(found), found.is_hang) == ("slow", [0], False), found.headline


def test_a_server_whose_workers_end() -> None:
    """One that has ended in an orderly way is not to blame where others may send still."""
    ending = "it ended in an orderly way: its agent was told of the end"
    ended = evidence(1, LATE, state="dead", moved=None, doing=None, ending=ending, way="orderly")
    server = evidence(0, (*LATE, message("recv", None)), doing=WAITING)
    works = evidence(2, LATE, doing=SAVING, work=Work(written_rate=1e8, is_ready=True))
    replied = evidence(3, (*LATE, message("recv", 0)), doing=WAITING)
    found = judge([server, ended, works, replied])
    assert (found.kind, found.is_hang) == ("slow", False), found.headline
    killed = dataclasses.replace(ended, ending="it ended with ValueError", way=None)
    assert named(judge([server, killed, dataclasses.replace(replied, rank=2), replied])) == (
        "dead", [1],
    )  # fmt: skip


def test_what_others_have_left_behind() -> None:
    """Of a collective that its root is past already, not all are said to be in it."""
    ranks = [waiting(rank) for rank in range(3)]
    ranks.append(evidence(3, (*LATE, call(41))))
    found = judge(ranks)
    assert named(found) == ("same_collective", [])
    assert "Ranks 0-2 are in all_reduce number 41 of group 0" in found.headline
    assert "all ranks of the group have come to it" in found.headline
