"""The rules of `probing hang`: from what is seen of the ranks to who is to blame."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence
from typing import Any

import duckdb
import pytest

from probing.cli.render.ranks.hang import render_verdict
from probing.diagnosis.hang import Call, Doing, Group, RankEvidence, Verdict, judge
from probing.diagnosis.hang.seen import record
from probing.diagnosis.hang.seen.doings import doing_of
from probing.diagnosis.hang.seen.flights import by_flights
from probing.diagnosis.hang.seen.others import _lock_holder, _named
from probing.diagnosis.hang.waiting import waits_of
from probing.messages.common import Backtrace, Frame, ThreadStack
from tests.unit.doctor.made import MadeProcess
from tests.unit.ranks.hang_samples import (
    LOADING,
    STILL_S,
    WAITING,
    WORLD,
    call,
    evidence,
    history,
    waiting,
    waiting_but,
)

pytestmark = pytest.mark.anypython

LATE = history(40)
SAVE = "checkpoint.py:30"
EXITING = Doing(kind="exiting", words="is waiting at exit for the threads that are no daemons")


def in_call(rank: int, **facts: Any) -> RankEvidence:
    """A rank that is in another collective than the others, at the same number."""
    opened = call(41, is_open=True, **{"age_s": STILL_S, **facts})
    return evidence(rank, (*history(40), opened))


def dead(rank: int, calls: Sequence[Call], ending: str, at_ns: int, **facts: Any) -> RankEvidence:
    """A rank that has ended."""
    return evidence(
        rank, tuple(calls), state="dead", moved=None, doing=None, ending=ending, ended_ns=at_ns,
        **facts,
    )  # fmt: skip


FAULTS: dict[str, tuple[list[RankEvidence], str, set[int], str]] = {
    "missing, in the loader": (
        waiting_but({2: evidence(2, LATE)}),
        "missing", {2}, "Rank 2 has not come to all_reduce number 41 of group 0 at train.py:88",
    ),
    "missing, two of them": (
        waiting_but({1: evidence(1, LATE), 2: evidence(2, LATE)}),
        "missing", {1, 2}, "Ranks 1-2 have not come",
    ),
    "another op": (
        waiting_but({1: in_call(1, op="broadcast", reduce_op=None, root=0)}),
        "mismatch", {1}, "Rank 1 calls another op in collective number 41 of group 0: broadcast",
    ),
    "another shape": (
        waiting_but({3: in_call(3, shapes="[32,128]")}),
        "mismatch", {3}, "Rank 3 calls another shape",
    ),
    "another dtype": (
        waiting_but({0: in_call(0, dtypes="float64")}),
        "mismatch", {0}, "float64 sum at train.py:88, where ranks 1-3 call all_reduce",
    ),
    "another root": (
        [in_call(r, op="broadcast", reduce_op=None, root=int(r == 2)) for r in range(4)],
        "mismatch", {2}, "Rank 2 calls another root rank",
    ),
    "the first difference counts": (
        waiting_but({1: evidence(1, (*history(38), call(39, op="barrier", shapes=None, dtypes=None,
                                                        reduce_op=None, caller=SAVE),
                                     call(40), call(41, is_open=True, shapes="[1]")))}),
        "mismatch", {1}, "in collective number 39 of group 0: barrier at checkpoint.py:30",
    ),
    "a collective that only rank 0 calls": (
        waiting_but({0: in_call(0, shapes="[]", caller=SAVE)}),
        "mismatch", {0}, "all_reduce [] float32 sum at checkpoint.py:30",
    ),
    "a mismatch that killed an innocent rank": (
        waiting_but({1: in_call(1, shapes="[32,128]"),
                     2: dead(2, waiting(2).calls, "it was ended by SIGABRT", 10)}),
        "mismatch", {1}, "Rank 1 calls another shape",
    ),
    "dead": (
        waiting_but({1: dead(1, LATE, "it ended with an unhandled ValueError: bad label", 10)}),
        "dead", {1}, "Rank 1 has not come",
    ),
    "dead, and others of that": (
        waiting_but({1: dead(1, LATE, "it ended with ValueError", 10),
                     2: dead(2, LATE, "it ended with RuntimeError: Connection closed by peer", 20,
                             died_of_peers=True)}),
        "dead", {1}, "Rank 1 has not come",
    ),
    "stopped before it": (
        waiting_but({3: evidence(3, LATE, state="stopped")}),
        "stopped", {3}, "Rank 3 has not come",
    ),
    "stopped in it": (
        waiting_but({3: waiting(3, state="stopped")}),
        "stopped", {3}, "Rank 3 is stopped by a signal, and ranks 0-2 have to wait",
    ),
    "nowhere to be seen": (
        waiting_but({3: RankEvidence(rank=3, state="missing", world_size=4)}),
        "unseen", {3}, "Rank 3 has not come",
    ),
    "all in the same": (
        waiting_but({}),
        "same_collective", set(), "nobody is missing",
    ),
    "a raised exception, and a thread that keeps the process": (
        waiting_but({1: evidence(1, LATE, doing=EXITING,
                                 ending="it ended with an unhandled ValueError: bad label")}),
        "missing", {1}, "Rank 1 has not come",
    ),
}  # fmt: skip
"""What is seen, and of it: the kind of verdict, who is named, and words of its sentence."""


@pytest.mark.parametrize("name", FAULTS)
def test_the_right_ranks_are_named(name: str) -> None:
    """Each fault is told by its name, with the ranks that it is of and no other."""
    ranks, kind, named, words = FAULTS[name]
    verdict = judge(ranks, world=range(4))
    assert (verdict.kind, causes(verdict)) == (kind, named), verdict.headline
    assert words in verdict.headline
    assert verdict.is_hang
    living = {e.rank for e in ranks if e.is_alive}
    assert set(verdict.victims) & living == living - named
    assert verdict.next_steps
    assert verdict.queries


def causes(verdict: Verdict) -> set[int | None]:
    """The ranks that a verdict names."""
    return {cause.rank for cause in verdict.causes}


def test_a_missing_rank_is_shown_where_it_is() -> None:
    """What it does instead, its line, its stack and its last collective stand beside its name."""
    (cause,) = judge(FAULTS["missing, in the loader"][0]).causes
    assert cause.what == f"{LOADING.words}, at train.py:71 in batches"
    assert any("_try_get_data" in line for line in cause.evidence)
    assert any("all_reduce number 40 of group 0 at train.py:88" in line for line in cause.evidence)


def test_what_to_type_next_works_from_where_one_asks() -> None:
    """Ranks of other machines are named by their addresses, all as the command named them."""
    url, asked = "http://node1:9741/v1/ranks/77-4", "-t node1:9741 -t node2:9741"
    ranks = FAULTS["missing, in the loader"][0]
    far = [dataclasses.replace(rank, endpoint=url) for rank in ranks]
    verdict = judge(far, world=range(4), asked=asked)
    assert verdict.next_steps[0].startswith(f"`probing -t {url} dataloaders`: which worker")
    assert verdict.next_steps[1].startswith(f"`probing -t {url} backtrace --locals`")
    shown = render_verdict(verdict, width=100, asked=asked)
    assert f'  probing {asked} query "SELECT' in shown
    assert "-t all" not in shown
    steps = judge(waiting_but({}), world=range(4), asked=asked).next_steps
    assert any(step.startswith(f"`probing {asked} backtrace --native`") for step in steps)


def test_no_majority() -> None:
    """Of two against two both sides are told, and nobody is called a victim."""
    ranks = [in_call(r, shapes=f"[{r // 2}]") for r in range(4)]
    verdict = judge(ranks)
    assert causes(verdict) == {0, 1, 2, 3}
    assert verdict.victims == ()
    assert "none has a majority" in verdict.headline
    assert verdict.confidence.startswith("medium")


def test_two_groups_that_wait_for_each_other() -> None:
    """A circle of waits is told rank by rank; those who wait for its ranks are victims."""
    groups = (WORLD, Group(name="1", size=2, ranks=(0, 1)), Group(name="2", size=2, ranks=(0, 1)))
    ranks = waiting_but({
        0: evidence(0, (*LATE, call(1, is_open=True, group="1", age_s=20)), groups=groups),
        1: evidence(1, (*LATE, call(1, is_open=True, group="2", age_s=20)), groups=groups),
    })  # fmt: skip
    verdict = judge(ranks)
    assert (verdict.kind, causes(verdict), verdict.victims) == ("deadlock", {0, 1}, (2, 3))
    assert "rank 0 waits in all_reduce number 1 of group 1 at train.py:88 for rank 1" in (
        verdict.headline
    )


def test_a_chain_of_groups_ends_at_its_last_rank() -> None:
    """Rank 0 waits for rank 1, which waits in another group for rank 3: rank 3 is named alone."""
    groups = (WORLD, Group(name="1", size=2, ranks=(1, 3)))
    ranks = waiting_but({
        1: evidence(1, (*LATE, call(5, is_open=True, group="1", age_s=20)), groups=groups),
        3: evidence(3, (*LATE, call(4, group="1")), groups=groups),
    })  # fmt: skip
    verdict = judge(ranks)
    assert (verdict.kind, causes(verdict), verdict.victims) == ("missing", {3}, (0, 1, 2))
    assert "number 5 of group 1" in verdict.headline


def test_one_rank_that_was_asked_alone() -> None:
    """Ranks that nobody asked are not blamed: the verdict says that they were not asked."""
    verdict = judge([waiting(1)])
    assert (verdict.kind, verdict.causes) == ("unseen", ())
    assert "ranks 0,2-3 of the job were not asked" in verdict.headline
    assert "probing -t all hang" in verdict.next_steps[0]


def test_a_message_that_nobody_sends() -> None:
    """A rank that waits in a recv waits for its peer and nobody else."""
    opened = call(9, op="recv", peer=2, is_open=True, age_s=20)
    ranks = [evidence(0, (*LATE, opened)), *(evidence(r, LATE) for r in (1, 2, 3))]
    verdict = judge(ranks)
    assert causes(verdict) == {2}
    assert "recv from rank 2" in verdict.headline


def moving(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    """The same ranks, in a job that goes on."""
    return [dataclasses.replace(e, moved=True, still_s=0.1) for e in ranks]


def test_a_job_that_moves() -> None:
    """No verdict and no cause, whatever some of its ranks are in at that moment."""
    verdict = judge(moving(waiting_but({2: evidence(2, LATE)})))
    assert (verdict.kind, verdict.is_hang, verdict.causes) == ("healthy", False, ())
    assert "in step 40" in verdict.headline


@pytest.mark.parametrize(("still_s", "median_s", "is_hang"), [
    (3.2, 0.5, False), (12.0, 0.5, True), (12.0, 3.0, False), (16.0, 3.0, True),
])  # fmt: skip
def test_a_slow_rank_is_not_called_hung(still_s: float, median_s: float, is_hang: bool) -> None:
    """Only after 10 s, or five median steps; before, the rank to watch is named all the same."""
    ranks = [
        dataclasses.replace(e, still_s=still_s, median_step_s=median_s)
        for e in waiting_but({2: evidence(2, LATE)})
    ]
    verdict = judge(ranks)
    assert verdict.is_hang is is_hang
    assert causes(verdict) == {2}
    assert verdict.threshold_s == max(10, 5 * median_s)


def test_within_the_time_of_a_step() -> None:
    """Ranks whose record stands still for less than two steps are not wondered about."""
    ranks = [
        dataclasses.replace(e, still_s=3.0, median_step_s=2.0)
        for e in waiting_but({2: evidence(2, LATE)})
    ]
    assert judge(ranks).kind == "healthy"


def test_one_that_is_waited_for_and_works() -> None:
    """A rank whose own record grows is named with that, and not called hung."""
    verdict = judge(waiting_but({0: evidence(0, LATE, moved=True, still_s=0.1)}))
    assert causes(verdict) == {0}
    assert not verdict.is_hang
    assert any("it still moves" in line for line in verdict.causes[0].evidence)


def test_a_slow_rank_is_not_named_beside_a_dead_one() -> None:
    """Of those that have not come yet, one that will come by itself is left out."""
    ranks = waiting_but({
        1: dead(1, LATE, "it ended with ValueError", 10),
        2: evidence(2, LATE, moved=True, still_s=0.2),
    })  # fmt: skip
    assert causes(judge(ranks)) == {1}


def test_all_have_ended() -> None:
    """The rank that ended first and for a reason of its own is told from those that followed."""
    ranks = [
        dead(0, LATE, "RuntimeError: Connection closed by peer", 3, died_of_peers=True),
        dead(1, LATE, "ValueError: bad label", 2),
        dead(2, LATE, "RuntimeError: Connection reset by peer", 1, died_of_peers=True),
        dead(3, LATE, "it ended without a word", 0, way="wordless"),
    ]
    verdict = judge(ranks)
    assert (verdict.kind, verdict.is_hang, causes(verdict)) == ("ended", False, {1})
    assert "ValueError: bad label" in verdict.headline


def test_without_a_record_of_collectives() -> None:
    """The stacks alone still tell the odd one out, and the verdict says how little that is."""
    ranks = [dataclasses.replace(e, calls=(), groups=()) for e in FAULTS["dead"][0]]
    ranks[1] = evidence(1, (), groups=())
    verdict = judge(ranks)
    assert (verdict.kind, causes(verdict)) == ("missing", {1})
    assert verdict.confidence.startswith("low")


def test_collectives_under_way_are_no_wait() -> None:
    """A rank that has begun a collective and reads a batch meanwhile does not wait for others."""
    opened = call(41, is_open=True, is_async=True, age_s=STILL_S)
    ranks = waiting_but({r: waiting(r, seq=42) for r in (0, 1, 3)})
    ranks = [dataclasses.replace(e, calls=(*history(40), dataclasses.replace(opened, seq=41),
                                           call(42, is_open=True, age_s=STILL_S)))
             for e in ranks]  # fmt: skip
    ranks[2] = evidence(2, (*history(40), opened))
    assert causes(judge(ranks)) == {2}


def test_what_is_under_way_alone_is_no_wait() -> None:
    """Of ranks that do something else beside a collective under way, none waits in it."""
    opened = call(41, is_open=True, is_async=True, age_s=STILL_S)
    ranks = {rank: evidence(rank, (*history(40), opened)) for rank in range(3)}
    ranks[3] = evidence(3, history(40))
    assert waits_of(ranks, range(4)) == {}
    in_it = dataclasses.replace(ranks[0], doing=WAITING)
    assert set(waits_of({**ranks, 0: in_it}, range(4))) == {0}


def test_a_reduction_that_is_not_told_is_no_other() -> None:
    """Calls from C++ have no reduction on record: that is no mismatch with a rank that tells it."""
    calls = (*history(39), call(40, reduce_op=None), call(41, reduce_op=None, is_open=True))
    ranks = waiting_but({1: evidence(1, calls, doing=WAITING), 2: evidence(2, history(40))})
    verdict = judge(ranks)
    assert (verdict.kind, causes(verdict)) == ("missing", {2})


def test_uneven_parts_are_allowed() -> None:
    """An op that takes parts of any size, and has ended so before, is no mismatch."""
    ranks = []
    for rank in range(4):
        own = call(35, op="all_gather", shapes=f"[{rank}]", reduce_op=None)
        calls = [own if c.seq == 35 else c for c in waiting(rank).calls]
        ranks.append(waiting(rank, calls=tuple(calls)))
    ranks[2] = dataclasses.replace(ranks[2], calls=ranks[2].calls[:-1], doing=LOADING)
    assert (judge(ranks).kind, causes(judge(ranks))) == ("missing", {2})


def test_what_else_stands_out() -> None:
    """A loss that is not finite, and a rank that always comes last, are hints and no verdict."""
    ranks = []
    for rank in range(4):
        late_ns = 300_000_000 if rank == 3 else 1000 * rank
        calls = tuple(dataclasses.replace(c, start_ns=(c.start_ns or 0) + late_ns) for c in LATE)
        ranks.append(evidence(rank, calls, not_finite=17 if rank == 1 else None))
    verdict = judge(moving(ranks))
    assert (verdict.kind, verdict.causes) == ("healthy", ())
    assert any(note.startswith("The loss of rank 1 is not finite") for note in verdict.notes)
    alone = dataclasses.replace(evidence(0, (), not_finite=17), rank=None, world_size=None)
    assert any(note.startswith("Its loss is not finite") for note in judge([alone]).notes)
    assert any("Rank 3 came last to 10 of the last 10" in note for note in verdict.notes)


PROCESSES = [
    ({"moved": True}, "healthy", False, "is making progress in step 40"),
    ({}, "process", True, "has not moved for 15 s, in step 40: it is in the DataLoader"),
    ({"still_s": 4.0}, "process", False, "has not moved for 4.0 s so far"),
    ({"state": "stopped"}, "stopped", True, "is stopped by a signal"),
    ({"step": None}, "process", False, "No training step"),
    ({"state": "dead", "ending": "it was killed"}, "ended", False, "has ended: it was killed"),
]


@pytest.mark.parametrize(("facts", "kind", "is_hang", "words"), PROCESSES)
def test_a_single_process(facts: dict[str, Any], kind: str, is_hang: bool, words: str) -> None:
    """A process of no group is told what it does, and hung only by the pace of its own steps."""
    one = dataclasses.replace(evidence(0, ()), rank=None, world_size=None, groups=(), **facts)
    verdict = judge([one])
    assert (verdict.kind, verdict.is_hang) == (kind, is_hang)
    assert words in verdict.headline


def stack(*frames: tuple[str, str], waiting: str) -> Backtrace:
    """A main thread with frames of function and file, innermost first."""
    rows = tuple(Frame(func=func, file=file, lineno=9) for func, file in frames)
    thread = ThreadStack(thread_id=1, name="MainThread", is_main=True, frames=rows, waiting=waiting)
    return Backtrace(pid=1, source="agent", threads=(thread,))


PACKAGES = "/venv/lib/python3.11/site-packages/"
STACKS = [
    (stack(("__getitem__", "/job/data.py"),
           ("fetch", PACKAGES + "torch/utils/data/_utils/fetch.py"), ("train", "/job/train.py"),
           waiting="sleeping"), "loader", "data.py:9 in __getitem__"),
    (stack(("write", PACKAGES + "torch/serialization.py"), ("main", "/job/train.py"),
           waiting="writing to a file"), "checkpoint", "train.py:9 in main"),
    (stack(("Trainer.save_state", "/job/train.py"), waiting="running"), "checkpoint",
     "train.py:9 in save_state"),
    (stack(("all_reduce", PACKAGES + "torch/distributed/distributed_c10d.py"),
           ("save_state", "/job/train.py"),
           waiting="waiting for the other ranks in the collective all_reduce"), "collective",
     "train.py:9 in save_state"),
    (stack(("work", "/job/train.py"), waiting="waiting for a lock"), "lock", "train.py:9 in work"),
    (stack(("work", "/job/train.py"), waiting="running Python code"), "python",
     "train.py:9 in work"),
]  # fmt: skip


@pytest.mark.parametrize(("trace", "kind", "where"), STACKS)
def test_what_a_stack_does(trace: Backtrace, kind: str, where: str) -> None:
    """The DataLoader, a checkpoint and a collective are told by their frames, the rest by words."""
    doing = doing_of(trace)
    assert doing is not None
    assert (doing.kind, doing.where) == (kind, where)


def test_its_queries_are_true_when_they_are_run_later() -> None:
    """Once the job goes on they still show who was in what, and how far each rank had come."""
    verdict = judge(waiting_but({2: evidence(2, LATE)}), world=range(4))
    with duckdb.connect() as database:
        database.execute("CREATE SCHEMA python")
        database.execute(
            "CREATE TABLE python.collectives AS SELECT rank, '0' AS process_group, seq,"
            " 'all_reduce' AS op, NULL AS shapes, NULL AS dtypes, 'train.py:88' AS caller,"
            " seq * 1_000_000_000 AS start_ns, CAST(10 AS BIGINT) AS duration_ns"
            " FROM range(4) r(rank), range(31, 42) s(seq) WHERE rank <> 2 OR seq < 41"
        )
        of_the_hang = "UPDATE python.collectives SET duration_ns = {} WHERE seq = 41"
        answers = []
        for later in ("NULL", "20_000_000_000"):
            database.execute(of_the_hang.format(later))
            answers.append([database.execute(query.sql).fetchall() for query in verdict.queries])
            database.execute(
                "INSERT INTO python.collectives SELECT rank, '0', 42, 'barrier', NULL, NULL, 'b',"
                " 70_000_000_000, NULL FROM range(4) r(rank)"
            )
    assert answers[0] == answers[1]
    inside, reached = answers[0]
    assert [(row[0], row[2], row[-1]) for row in inside] == [(r, 41, STILL_S) for r in (0, 1, 3)]
    assert [row[:2] for row in reached] == [(2, 40), (0, 41), (1, 41), (3, 41)]
    ended = judge([dead(r, LATE, "it ended", 10) for r in range(4)], world=range(4))
    assert not any("now()" in query.sql for query in (*verdict.queries, *ended.queries))


def flown(last: int, *, opened: bool) -> tuple[Call, ...]:
    """What a recorder has of a rank of which we have nothing: it names no line, and no thread."""
    return tuple(
        Call(
            group="0",
            seq=seq,
            op="all_reduce",
            shapes="[64,128]",
            dtypes="float32",
            is_async=True,
            age_s=STILL_S + last - seq,
            start_ns=seq,
            is_open=opened and seq == last,
        )
        for seq in range(1, last + 1)
    )


def late_ranks() -> list[RankEvidence]:
    """Ranks of an agent that came when they hung already: there are stacks, and no rows."""
    waits = [evidence(rank, (), doing=WAITING, still_s=None) for rank in range(4)]
    return [*waits[:2], evidence(2, (), doing=LOADING, still_s=None), waits[3]]


def test_the_flight_recorder_speaks_where_the_agent_came_late() -> None:
    """Torch's record says who is missing, from which collective, and for how long they wait."""
    ranks = late_ranks()
    flights = {e.endpoint: flown(40 + (e.rank != 2), opened=e.rank != 2) for e in ranks}
    verdict = judge(by_flights(ranks, flights))
    assert (verdict.kind, verdict.is_hang) == ("missing", True)
    assert [cause.rank for cause in verdict.causes] == [2]
    assert verdict.victims == (0, 1, 3)
    assert "not come to all_reduce number 41 of group 0 at train.py:88" in verdict.headline
    assert "flight recorder" in verdict.confidence
    assert verdict.still_s == STILL_S


def test_a_rank_that_waits_for_its_device_is_looked_up_too() -> None:
    """`item()` behind a collective: the host is in no collective, but its device is."""
    doing = Doing(kind="device", words="is waiting for the GPU", where="train.py:90 in step")
    ranks = [dataclasses.replace(e, doing=doing) if e.rank != 2 else e for e in late_ranks()]
    flights = {e.endpoint: flown(40 + (e.rank != 2), opened=e.rank != 2) for e in ranks}
    verdict = judge(by_flights(ranks, flights))
    assert (verdict.kind, verdict.is_hang) == ("missing", True)
    assert [cause.rank for cause in verdict.causes] == [2]


def test_two_ways_of_counting_are_not_mixed() -> None:
    """Without a recorder of each rank that answers, or with rows of ours, ours is what counts."""
    ranks = late_ranks()
    flights = {e.endpoint: flown(41, opened=e.rank != 2) for e in ranks}
    del flights[ranks[1].endpoint]
    assert by_flights(ranks, flights) == ranks
    ours = waiting_but({2: evidence(2, LATE)})
    flights = {e.endpoint: flown(7, opened=True) for e in ours}
    assert by_flights(ours, flights) == ours


def test_a_process_that_nothing_is_seen_of_has_not_ended() -> None:
    """That it could not be looked at is said, with the reason, and not that it has ended."""
    one = RankEvidence(rank=None, pid=7, state="unreachable", notes=("it did not answer in 5 s.",))
    verdict = judge([one])
    assert verdict.headline == "Process 7 could not be looked at: it did not answer in 5 s."
    assert (verdict.kind, verdict.outcome, verdict.has_ended) == ("process", "fine", False)


def test_ranks_that_nothing_is_seen_of_are_not_said_to_stand_still() -> None:
    """Nor that they move: nothing is known."""
    ranks = [RankEvidence(rank=rank, pid=7 + rank, state="unreachable") for rank in range(2)]
    verdict = judge(ranks)
    assert verdict.headline == "Ranks 0-1 could not be looked at."
    assert (verdict.kind, verdict.outcome) == ("process", "fine")
    late = [dataclasses.replace(rank, notes=("They were late (30 s).",)) for rank in ranks]
    assert judge(late).headline == "Ranks 0-1 could not be looked at: They were late (30 s)."


def test_who_has_the_lock_of_a_file() -> None:
    """By the kernel's list, in which those that wait follow the one that they wait for."""
    locks = (
        "1: POSIX  ADVISORY  READ 41 fe:00:5474652 128 128\n"
        "2: FLOCK  ADVISORY  WRITE 42 fe:00:131 0 EOF\n"
        "2: -> FLOCK  ADVISORY  WRITE 7 fe:00:131 0 EOF\n"
        "3: OFDLCK ADVISORY  WRITE -1 fe:00:132 0 EOF\n"
        "3: -> OFDLCK ADVISORY  WRITE 8 fe:00:132 0 EOF\n"
    )
    assert [_lock_holder(locks, pid) for pid in (7, 8, 41)] == [42, None, None]


def test_a_lock_of_a_file_and_a_collective_in_a_circle() -> None:
    """A rank that has the lock that another waits for, and waits for that one, is in a deadlock."""
    locked = Doing(kind="lock", words="is waiting for a file lock", where="cache.py:31 in refresh")
    holder = waiting(0)
    wants = evidence(1, LATE, doing=locked, lock_pid=holder.pid)
    verdict = judge([holder, wants], world=range(2))
    assert (verdict.kind, verdict.is_hang) == ("deadlock", True)
    assert [cause.rank for cause in verdict.causes] == [0, 1]
    assert "rank 0 has the lock of a file and waits in all_reduce number 41" in verdict.headline
    assert "rank 1 waits for that lock, at cache.py:31 in refresh" in verdict.headline
    for other in (
        dataclasses.replace(wants, lock_pid=99999),
        dataclasses.replace(wants, host="far"),
    ):
        assert judge([holder, other], world=range(2)).kind != "deadlock"


def test_a_loss_that_was_finite_again_is_no_hint() -> None:
    """One step with NaN long ago, as a gradient scaler leaves out, is over."""
    made = [{"step": s, "loss_finite": s != 3, "duration": 1.0} for s in range(1, 9)]
    (row,) = MadeProcess({"steps": made}, {}).query(record._STEPS).to_pylist()
    assert (row["step"], row["not_finite"]) == (8, None)
    made[-1] |= {"loss_finite": False}
    (row,) = MadeProcess({"steps": made}, {}).query(record._STEPS).to_pylist()
    assert row["not_finite"] == 8


def test_who_is_waited_for_is_named_without_its_secrets() -> None:
    """What a verdict says of another process may go into a log or to a web hook."""
    command = ["sh", "-c", "read line", "sh", "--api-key", "s3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert _named(child.pid) == f"process {child.pid} (sh -c read line sh --api-key ***)"
