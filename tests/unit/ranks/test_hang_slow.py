"""Slow, hung and crashed told apart, and who of the dead is to blame."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing.diagnosis.hang import Call, Doing, Group, RankEvidence, Work, judge
from probing.diagnosis.hang.seen.doings import doing_of
from probing.diagnosis.hang.seen.looks import with_same_waits
from probing.diagnosis.hang.seen.own_ends import says_of_peers
from probing.diagnosis.hang.seen.work import work_between, work_words
from probing.diagnosis.hang.waiting import waits_of
from probing.messages.common import Awaited, Backtrace, Frame, ThreadBytes, ThreadStack, WorkDone
from probing.postmortem.endings import Way
from tests.unit.ranks.hang_samples import (
    LATE,
    LOADING,
    STILL_S,
    call,
    evidence,
    waiting,
    waiting_but,
)

pytestmark = pytest.mark.anypython

SAVING = Doing(kind="checkpoint", words="is in its checkpoint code", where="train.py:30 in save")
RUNNING = Doing(kind="python", words="runs Python code", where="train.py:40 in score")
SLEEPING = Doing(kind="sleep", words="is sleeping", where="train.py:50 in pause")
LOCKED = Doing(kind="lock", words="is waiting for a lock", where="train.py:60 in take")
SYNCING = Doing(
    kind="io", words="is waiting for data to reach the disk", where="train.py:31 in save"
)
SPINNING = Doing(kind="device", words="runs Python code", where="train.py:77 in log")
MB = 1e6
WORK: dict[str, tuple[Doing, Work, float, str]] = {
    "it writes a checkpoint": (
        SAVING, Work(written_rate=240 * MB), STILL_S,
        "Rank 0 has been writing a checkpoint for 15 s (228.9 MiB/s), at train.py:30 in save; ranks"
        " 1-3 wait for it in all_reduce number 41 of group 0 at train.py:88.",
    ),
    "it writes for an hour": (SAVING, Work(written_rate=5 * MB), 3600, "writing a checkpoint for"),
    "it reads": (RUNNING, Work(read_rate=90 * MB), STILL_S, "reading for 15 s (85.8 MiB/s)"),
    "it computes": (RUNNING, Work(cpu=0.97), STILL_S, "computing for 15 s (97 % of a processor)"),
    "it moves on, with little": (RUNNING, Work(cpu=0.1, has_moved_on=True), 20, "computing for"),
    "it computes, and others have the processors": (
        RUNNING, Work(cpu=0.01, starved=0.9, is_ready=True), STILL_S,
        "has been computing for 15 s (1 % of a processor; it waited for one for 90 % of the time)",
    ),
    "it reads numbers from the GPU, one after the other": (
        SPINNING, Work(cpu=1.0, has_moved_on=True), STILL_S, "has been computing for 15 s",
    ),
    "its workers compute": (LOADING, Work(children_cpu=1.6), STILL_S, "of its own, which compute"),
    "a process of its own packs the checkpoint": (
        SAVING, Work(children_cpu=0.9), STILL_S,
        "waiting for 15 s for processes of its own, which compute (90 % of a processor)",
    ),
    "a process of its own sends the checkpoint": (
        SAVING, Work(children_rate=20 * MB), STILL_S, "which read and write (19.1 MiB/s)",
    ),
    "it writes to a slow disk": (SAVING, Work(written_rate=0.65 * MB), 20, "20 s (634.8 KiB/s)"),
    "it waits for the disk": (SYNCING, Work(), STILL_S, "waiting for 15 s for its data to reach"),
}  # fmt: skip
NO_WORK: dict[str, tuple[Doing, Work, float]] = {
    "it has computed for too long": (RUNNING, Work(cpu=1.0), 700),
    "it waits for the disk for too long": (SYNCING, Work(), 300),
    "it waits for a lock, and others compute": (LOCKED, Work(cpu=0.9, children_cpu=4.0), STILL_S),
    "it sleeps": (SLEEPING, Work(has_moved_on=True), STILL_S),
    "it waits for the GPU, and keeps a processor busy": (SPINNING, Work(cpu=1.0), STILL_S),
    "it polls, and others have the processors": (
        RUNNING, Work(cpu=0.01, starved=0.3, is_ready=True), STILL_S,
    ),
    "it polls": (RUNNING, Work(cpu=0.01, has_moved_on=True), STILL_S),
    "it writes a log": (LOCKED, Work(written_rate=2000), STILL_S),
    "a process of its own writes a log": (SAVING, Work(children_rate=20_000), STILL_S),
}  # fmt: skip


def held_by(doing: Doing, work: Work, still_s: float) -> list[RankEvidence]:
    """Ranks that wait for rank 0."""
    ranks = waiting_but({0: evidence(0, LATE, doing=doing, work=work)})
    return [dataclasses.replace(rank, still_s=still_s) for rank in ranks]


@pytest.mark.parametrize("name", WORK)
def test_who_gets_on_is_slow(name: str) -> None:
    """What the kernel counts of a rank that the others wait for is progress, and no hang."""
    doing, work, still_s, words = WORK[name]
    verdict = judge(held_by(doing, work, still_s), world=range(4))
    assert (verdict.kind, verdict.outcome, verdict.is_hang) == ("slow", "slow", False)
    assert [cause.rank for cause in verdict.causes] == [0]
    assert words in verdict.headline
    assert verdict.victims == (1, 2, 3)


@pytest.mark.parametrize("name", NO_WORK)
def test_who_gets_nothing_done_hangs(name: str) -> None:
    """Neither a loop that polls nor the work of others is progress, nor is work without an end."""
    verdict = judge(held_by(*NO_WORK[name]), world=range(4))
    assert (verdict.kind, verdict.outcome) == ("missing", "hang")
    assert verdict.confidence.startswith("medium" if name == "it sleeps" else "high")


def test_who_gets_on_is_not_named_beside_who_does_not() -> None:
    """Of two that are waited for, the one that will not come by itself is the cause."""
    ranks = waiting_but({
        0: evidence(0, LATE, doing=SAVING, work=Work(written_rate=9 * MB)),
        1: evidence(1, LATE, doing=LOCKED, work=Work()),
    })  # fmt: skip
    verdict = judge(ranks, world=range(4))
    assert [cause.rank for cause in verdict.causes] == [1]
    assert verdict.outcome == "hang"


def test_who_gets_no_processor_is_not_named_beside_who_stays_away() -> None:
    """Early, while both may still come: the one has not had its turn, the other does nothing."""
    starved = Work(cpu=0.01, starved=0.9, is_ready=True)
    late = {
        1: evidence(1, LATE, doing=RUNNING, work=starved),
        2: evidence(2, LATE, doing=SLEEPING, work=Work()),
    }
    ranks = [dataclasses.replace(e, still_s=3.2) for e in waiting_but(late)]
    assert [cause.rank for cause in judge(ranks).causes] == [2]
    ranks[2] = dataclasses.replace(waiting(2), still_s=3.2)
    assert [cause.rank for cause in judge(ranks).causes] == [1]


def test_all_sleep() -> None:
    """Ranks that all sleep between two steps are slow; with one in a lock, nobody can tell."""
    ranks = [evidence(rank, LATE, doing=SLEEPING, work=Work()) for rank in range(4)]
    verdict = judge(ranks, world=range(4))
    assert (verdict.kind, verdict.outcome) == ("slow", "slow")
    assert "Ranks 0-3 have been sleeping for 15 s, at train.py:50 in pause" in verdict.headline
    ranks[2] = dataclasses.replace(ranks[2], doing=LOCKED)
    assert (judge(ranks).kind, judge(ranks).outcome) == ("unknown", "hang")


def test_one_process_that_gets_on() -> None:
    """A process without others is slow, too, while it computes."""
    one = evidence(0, (), world_size=None, groups=(), doing=RUNNING, work=Work(cpu=0.9))
    verdict = judge([dataclasses.replace(one, rank=None)])
    assert (verdict.kind, verdict.outcome) == ("slow", "slow")
    assert verdict.confidence.startswith("medium: the kernel counts")  # as of ranks
    naps = dataclasses.replace(one, rank=None, doing=SLEEPING, work=Work())
    assert judge([naps]).confidence.startswith("medium: by the stacks")
    assert judge([dataclasses.replace(one, rank=None, work=None)]).outcome == "hang"


HELD_UP = Doing(
    kind="lock",
    words='is held up by thread 2 "saver", which has held the lock self.lock since train.py:20 in'
    " save and is sleeping at train.py:21 in save; it waits for that",
    where="train.py:30 in step",
    holder="sleep",
)


@pytest.mark.parametrize(
    ("still_s", "median_step_s", "work", "outcome"),
    [
        (1260.0, 0.024, Work(), "hang"),
        (56.0, 0.024, Work(), "slow"),
        (90.0, 1.0, Work(), "slow"),
        (110.0, 1.0, Work(), "hang"),
        (1260.0, None, Work(), "slow"),
        (1260.0, 0.024, Work(has_moved_on=True), "slow"),
    ],
)
def test_a_long_wait_for_a_thread_that_sleeps(
    still_s: float, median_step_s: float | None, work: Work, outcome: str
) -> None:
    """It hangs after a minute and a hundred usual steps, unless that thread gets on."""
    facts = {"still_s": still_s, "median_step_s": median_step_s, "doing": HELD_UP, "work": work}
    one = evidence(0, (), world_size=None, groups=(), **facts)
    verdict = judge([dataclasses.replace(one, rank=None)])
    assert verdict.outcome == outcome
    assert 'is held up by thread 2 "saver"' in verdict.headline
    assert "sleeping at train.py:21 in save" in verdict.headline
    assert verdict.confidence.startswith("medium")
    assert "Ranks" not in verdict.next_steps[1]
    assert ("with lock" in verdict.next_steps[1]) == (outcome == "hang")


def test_of_ranks_that_sleep_one_waits_for_a_thread_that_does() -> None:
    """That one is named, and the others are not."""
    ranks = [evidence(rank, LATE, doing=SLEEPING, work=Work(), still_s=600.0) for rank in range(3)]
    ranks += [evidence(3, LATE, doing=HELD_UP, work=Work(), still_s=600.0)]
    verdict = judge(ranks, world=range(4))
    assert (verdict.kind, verdict.outcome) == ("held", "hang")
    assert [cause.rank for cause in verdict.causes] == [3]
    assert verdict.headline.startswith("Rank 3 is held up by thread 2")


def look(time_s: float, line: int, cpu_s: float | None, **work: Any) -> Backtrace:
    """A process at one moment."""
    frames = (Frame(func="score", file="/job/train.py", lineno=line),)
    thread = ThreadStack(thread_id=7, name="m", is_main=True, frames=frames, cpu_s=cpu_s)
    all_work = WorkDone(time_s=time_s, **work)
    return Backtrace(pid=1, source="agent", threads=(thread,), work=all_work)


def done(thread_id: int, read_bytes: int, written_bytes: int) -> ThreadBytes:
    """What a thread has read and written."""
    return ThreadBytes(thread_id=thread_id, read_bytes=read_bytes, written_bytes=written_bytes)


def test_who_wants_a_processor_is_told_from_who_polls() -> None:
    """Ready to run all the time, it computes; going to sleep and waking up, it waits."""

    def at(time_s: float, **facts: Any) -> Backtrace:
        seen = look(time_s, 4, cpu_s=1.0)
        thread = dataclasses.replace(seen.threads[0], state="R", **facts)
        return dataclasses.replace(seen, threads=(thread,))

    first = at(10.0, ready_s=3.0, sleeps=7)
    busy, polls = (at(12.0, ready_s=4.75, sleeps=sleeps) for sleeps in (27, 28))
    assert work_between(first, busy) == Work(is_ready=True, starved=0.875)
    assert work_between(first, polls) == Work(is_ready=True)
    assert work_between(first, at(12.0, ready_s=4.75)) == Work(is_ready=True)


def test_work_is_the_difference_of_two_looks() -> None:
    """Per second of the process's own clock; what is not told, or fell, counts as nothing."""
    first = look(10.0, 4, 1.0, threads=(done(7, 100, 50),), children_cpu_s=9.0)
    second = look(12.0, 5, 2.0, threads=(done(7, 300, 40),), children_cpu_s=1.0)
    assert work_between(first, second) == Work(cpu=0.5, read_rate=100.0, has_moved_on=True)
    assert work_between(first, first) is None
    assert work_between(dataclasses.replace(first, work=None), second) is None


def test_only_threads_that_both_looks_have_seen_count() -> None:
    """One look from outside and one by the agent do not make work of what only one of them sees."""
    mine = (done(7, 100, 0), done(8, 0, 0))
    theirs = (done(7, 100, 0), done(9, 10**9, 10**9))
    for before, after in ((mine, theirs), (theirs, mine)):
        first, second = (look(t, 4, 1.0, threads=seen) for t, seen in ((1.0, before), (3.0, after)))
        assert work_between(first, second) == Work()


WAITS = Frame(func="Event.wait", file="/lib/python3.11/threading.py", lineno=629)
ASKS = Frame(func="score", file="/job/train.py", lineno=4)
COMPUTES = Frame(func="run", file="/job/train.py", lineno=9)
NATIVE = Frame(func="sem_wait", file="libc.so.6", lineno=0, kind="native")


def two_threads(source: str, time_s: float, cpu_s: float, awaits: Awaited | None) -> Backtrace:
    """A main thread that waits for an event, and one that computes."""
    frames = (WAITS, ASKS) if source == "agent" else (NATIVE, WAITS, ASKS)
    main = ThreadStack(
        thread_id=7, name="m", is_main=True, frames=frames, cpu_s=1.0, awaits=awaits,
        waiting="waiting for an event (threading.Event)",
    )  # fmt: skip
    other = ThreadStack(thread_id=8, name="o", is_main=False, frames=(COMPUTES,), cpu_s=cpu_s)
    return Backtrace(
        pid=1, source=source, threads=(main, other), work=WorkDone(time_s=time_s)
    )  # fmt: skip


SETS = Awaited(kind="event", what="the event done", holder_id=8, since="train.py:9 in run")


@pytest.mark.parametrize("sources", [("agent", "py-spy"), ("py-spy", "agent"), ("agent", "agent")])
def test_what_the_agent_knew_counts_for_a_look_from_outside(sources: tuple[str, str]) -> None:
    """A busy agent answers one look of two: the thread that computes is the one waited for."""
    looks = [
        two_threads(source, time_s, cpu_s, SETS if source == "agent" else None)
        for source, time_s, cpu_s in zip(sources, (1.0, 3.0), (4.0, 5.0), strict=True)
    ]
    first, second = with_same_waits(*looks)
    assert work_between(first, second) == Work(cpu=0.5)
    doing = doing_of(first)
    assert doing is not None
    rank = evidence(1, LATE, doing=doing, work=work_between(first, second))
    assert "waiting for 15 s for a thread that computes (50 % of a processor)" in work_words(rank)
    moved = dataclasses.replace(looks[1], threads=looks[1].threads[1:])
    assert with_same_waits(looks[0], moved)[1] == moved


def test_a_thread_beside_that_computes_leaves_it_open() -> None:
    """Where no look is the agent's, it may be what is waited for: slow, and hardly sure."""
    first, second = (two_threads("py-spy", t, cpu, None) for t, cpu in ((1.0, 4.0), (3.0, 5.0)))
    work, doing = work_between(first, second), doing_of(first)
    assert work == Work(others_cpu=0.5)
    rank = evidence(1, LATE, doing=doing, work=work)
    verdict = judge(waiting_but({1: rank}), world=range(4))
    assert (verdict.outcome, verdict.confidence.partition(":")[0]) == ("slow", "low")
    assert "Rank 1 has been waiting for 15 s while another thread of it computes (50 %" in (
        verdict.headline
    )
    first, second = (two_threads("agent", t, cpu, None) for t, cpu in ((1.0, 4.0), (3.0, 5.0)))
    rank = dataclasses.replace(rank, work=work_between(first, second))
    assert judge(waiting_but({1: rank}), world=range(4)).outcome == "hang"


RUNS = {"R": "running", "S": None, "G": "running Python code"}
"""What is said of a thread in that state; of G that the agent holds the interpreter lock."""


@pytest.mark.parametrize(
    ("states", "outcome"), [("RR", "slow"), ("RG", "slow"), ("RS", "hang"), ("SS", "hang")]
)
def test_who_is_ready_to_run_computes_on_a_busy_machine(states: str, outcome: str) -> None:
    """With a tenth of a processor, at one line: who polls sleeps at one of two looks."""
    looks = [
        dataclasses.replace(
            seen,
            threads=(dataclasses.replace(seen.threads[0], state=state, waiting=RUNS[state]),),
        )
        for seen, state in zip((look(10.0, 4, 1.0), look(12.0, 4, 1.2)), states, strict=True)
    ]
    work, doing = work_between(looks[0], looks[1]), doing_of(looks[0])
    assert work is not None
    assert work.cpu == pytest.approx(0.1)
    rank = evidence(1, LATE, doing=doing, work=work)
    assert judge(waiting_but({1: rank}), world=range(4)).outcome == outcome


def test_a_line_that_waits_for_the_device() -> None:
    """`loss.item()` may keep a processor busy while it waits for a GPU, and is told by its line."""
    frame = Frame(func="log", file="/job/train.py", lineno=77, line="total += loss.item()")
    thread = ThreadStack(thread_id=7, name="m", is_main=True, frames=(frame,), waiting="running")
    doing = doing_of(Backtrace(pid=1, source="agent", threads=(thread,)))
    assert doing is not None
    assert (doing.kind, doing.words) == ("device", "runs Python code")


WORDLESS = "it ended without a word: no exception is on record, as after SIGKILL"
NO_MEMORY = f"{WORDLESS}. Killed by the kernel OOM killer: the machine's memory ran out"
PEERS = "it ended with RuntimeError: Connection reset by peer"
UNTOLD = "how it ended nothing tells: its agent was taken out of it"
WELL = "it ended in an orderly way: its agent was told of the end"
WAYS: dict[str, Way] = {
    WORDLESS: "wordless", NO_MEMORY: "oom", UNTOLD: "untold", WELL: "orderly",
}  # fmt: skip


def ended(rank: int, ending: str, *, last: Call | None = None, **facts: Any) -> RankEvidence:
    """A rank that has ended; of its peers if it says so."""
    calls = (*LATE, last) if last is not None else LATE
    by_peers = ending == PEERS
    return evidence(
        rank, calls, state="dead", moved=None, doing=None, ending=ending,
        way=WAYS.get(ending), died_of_peers=by_peers,
        ended_ns=None if "a word" in ending else 10 + rank, **facts,
    )  # fmt: skip


IN_IT = call(41, is_open=True)
FAILED = call(41, error="RuntimeError: Connection reset by peer")
ENDS: dict[str, tuple[list[RankEvidence], set[int], str]] = {
    "killed before it came": (
        [ended(0, PEERS, last=FAILED), ended(1, WORDLESS), ended(2, PEERS, last=FAILED)],
        {1}, "Rank 1 had not come to all_reduce number 41 of group 0 at train.py:88, where ranks"
        " 0,2 were",
    ),
    "the launcher ended the others without a word": (
        [ended(0, WORDLESS, last=IN_IT), ended(1, WORDLESS), ended(2, WORDLESS, last=IN_IT)],
        {1}, "Rank 1 had not come",
    ),
    "killed in it": (
        [ended(0, PEERS, last=FAILED), ended(1, WORDLESS, last=IN_IT)],
        {1}, "rank 1 first",
    ),
    "killed by the OOM killer": (
        [ended(0, WORDLESS), ended(1, NO_MEMORY), ended(2, PEERS)], {1}, "kernel OOM killer",
    ),
    "an error of its own, before the launcher ended one that had not come either": (
        [ended(0, WORDLESS, last=IN_IT), ended(1, "it ended with ValueError"), ended(2, WORDLESS)],
        {1}, "ValueError",
    ),
    "torch names it": (
        [ended(0, "RuntimeError: Rank 2 failed to pass monitoredBarrier in 5000 ms"),
         ended(1, PEERS), ended(2, WORDLESS)],
        {2}, "rank 2 first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_the_first_of_the_dead(name: str) -> None:
    """Where each rank was counts before what it said, and its own end before that of its peers."""
    ranks, named, words = ENDS[name]
    verdict = judge(ranks, world=range(len(ranks)))
    assert {cause.rank for cause in verdict.causes} == named, verdict.headline
    assert words in verdict.headline
    assert (verdict.outcome, verdict.has_ended) == ("crashed", True)


def test_an_end_that_nothing_tells_of_is_no_crash() -> None:
    """Nor is it called an orderly one."""
    verdict = judge([ended(0, WELL), ended(1, UNTOLD)])
    assert (verdict.outcome, verdict.ended_well) == ("fine", True)
    assert verdict.headline == "All 2 ranks have ended; of rank 1 nothing tells how."


def test_an_orderly_end_is_no_crash() -> None:
    """A job whose ranks have all ended as they should is fine."""
    verdict = judge([ended(rank, WELL) for rank in range(4)])
    assert (verdict.outcome, verdict.has_ended, verdict.causes) == ("fine", True, ())
    assert verdict.headline == "All 4 ranks have ended in an orderly way."


def test_a_rank_that_never_came_is_named_after_the_others_have_failed() -> None:
    """Those that a timeout has ended are victims of the one that is alive in a lock, at once."""
    ranks = [ended(r, PEERS, last=FAILED) for r in range(4)]
    ranks[1] = evidence(1, LATE, doing=LOCKED, still_s=4.0)
    verdict = judge(ranks, world=range(4))
    assert ([cause.rank for cause in verdict.causes], verdict.victims) == ([1], (0, 2, 3))
    assert "ranks 0,2-3 have failed there" in verdict.headline
    assert (verdict.kind, verdict.outcome) == ("missing", "hang")


@pytest.mark.parametrize(("text", "is_of_peers"), [
    ("RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]", True),
    ("RuntimeError: Timed out waiting 5000ms for recv operation to complete", True),
    ("RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 5000 ms", True),
    ("DistBackendError: NCCL communicator was aborted on rank 1", True),
    ("RuntimeError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)", True),
    ("TimeoutError: no answer from the feature store", False),
    ("ConnectionResetError: [Errno 104] Connection reset by peer", False),
    ("ValueError: timeout must be positive", False),
])  # fmt: skip
def test_whose_error_it_is(text: str, is_of_peers: bool) -> None:
    """Torch's errors about peers are told from those of the job's own code."""
    assert says_of_peers(text) is is_of_peers


JOINING = Doing(
    kind="joining", words="is waiting for the other ranks to join (new_group)",
    where="train.py:9 in setup",
)  # fmt: skip


def test_a_rank_that_does_not_join() -> None:
    """Who never comes to init_process_group is named with both lines, and hangs after a minute."""
    first = dataclasses.replace(
        JOINING, words="is waiting for the other ranks to join (init_process_group)"
    )
    facts: dict[str, Any] = {"groups": (), "step": None, "still_s": None, "median_step_s": None}
    for age_s, outcome in ((20.0, "fine"), (70.0, "hang")):
        ranks = [evidence(r, (), doing=first, age_s=age_s, **facts) for r in range(4)]
        ranks[1] = dataclasses.replace(ranks[1], doing=LOCKED)
        verdict = judge(ranks, world=range(4))
        assert (verdict.kind, verdict.outcome) == ("not_joined", outcome)
        assert [cause.rank for cause in verdict.causes] == [1]
        assert "ranks 0,2-3 are waiting" in verdict.headline
        assert (
            "train.py:9 in setup; rank 1 is waiting for a lock at train.py:60" in verdict.headline
        )


def test_groups_in_another_order() -> None:
    """The arguments of `new_group`, or the groups that only some have made, tell it."""
    ranks = [
        evidence(r, LATE, doing=dataclasses.replace(JOINING, group_ranks=f"[0, {1 + r // 2}]"))
        for r in range(4)
    ]
    verdict = judge(ranks)
    assert verdict.kind == "not_joined"
    assert "ranks 0-1 in new_group of ranks [0, 1] at train.py:9" in verdict.headline
    assert "ranks 2-3 in new_group of ranks [0, 2]" in verdict.headline
    ranks = [evidence(r, LATE, doing=JOINING) for r in range(4)]
    assert judge(ranks).causes == ()
    pair = Group(name="1", size=2, ranks=(0, 1))
    ranks[0] = dataclasses.replace(ranks[0], groups=(*ranks[0].groups, pair))
    assert "rank 1 has not made group 1 of ranks 0-1, as rank 0 did" in judge(ranks).headline


@pytest.mark.parametrize(("asked", "named", "sure"), [
    ("[0, 1]", {1}, "medium"),
    ("range(0, 2)", {1}, "medium"),
    ("[0, 1, 2]", {0}, "high"),
    ("None", {0}, "high"),
])  # fmt: skip
def test_only_members_are_waited_for(asked: str, named: set[int], sure: str) -> None:
    """Where those are that are no members of the group says nothing of who should have come."""
    joins = dataclasses.replace(JOINING, group_ranks=asked)
    verdict = judge(waiting_but({0: evidence(0, LATE, doing=joins)}), world=range(4))
    assert {cause.rank for cause in verdict.causes} == named
    assert verdict.confidence.startswith(sure)
    if named == {1}:
        assert verdict.victims == (0, 2, 3)
        assert (verdict.victims_do or "").endswith("(ranks 2-3)")


def test_a_member_that_does_something_else_has_not_come() -> None:
    """It is named though all others wait in a collective behind the group."""
    joins = dataclasses.replace(JOINING, group_ranks="[0, 1]")
    others = {0: evidence(0, LATE, doing=joins), 1: evidence(1, LATE, doing=LOCKED)}
    verdict = judge(waiting_but(others), world=range(4))
    assert ([cause.rank for cause in verdict.causes], verdict.victims) == ([1], (0, 2, 3))
    assert "Rank 1 has not come to new_group of ranks [0, 1]" in verdict.headline


def test_a_key_that_nobody_sets() -> None:
    """A wait at the store is told by its line; while another rank could set it, that is named."""
    frame = Frame(func="f", file="/job/train.py", lineno=3, line='store.wait(["x"])')
    thread = ThreadStack(
        thread_id=7, name="m", is_main=True, frames=(frame,), waiting="waiting for a lock"
    )
    doing = doing_of(Backtrace(pid=1, source="agent", threads=(thread,)))
    assert doing is not None
    assert (doing.kind, doing.words) == ("store", "is waiting for a key of the store")
    ranks = waiting_but({1: evidence(1, LATE, doing=doing)})
    verdict = judge(ranks, world=range(4))
    assert (verdict.kind, [cause.rank for cause in verdict.causes]) == ("store", [1])
    assert "a key of the store at train.py:3 in f, which nobody has set" in verdict.headline
    ranks[2] = evidence(2, LATE, doing=LOCKED)
    assert judge(ranks, world=range(4)).kind == "missing"


def test_a_recv_without_its_send() -> None:
    """A rank that waits for another's message, while that waits for all, has both lines told."""
    opened = call(9, op="recv", peer=1, is_open=True, age_s=20, caller="train.py:70")
    verdict = judge(waiting_but({0: evidence(0, (*LATE, opened))}), world=range(4))
    assert verdict.kind == "unmatched"
    assert {cause.rank for cause in verdict.causes} == {0, 1}
    assert verdict.headline == (
        "Rank 0 waits in recv from rank 1 in group 0 at train.py:70, for 20 s, and rank 1 does not"
        " send to it: it waits in all_reduce number 41 of group 0 at train.py:88."
    )


def test_who_is_where_among_several_groups() -> None:
    """Ranks that wait for one rank in different groups are told apart."""
    side = Group(name="1", size=2, ranks=(1, 2))
    opened = call(5, op="all_gather", is_open=True, group="1", age_s=12, caller="train.py:33")
    ranks = waiting_but({
        1: evidence(1, (*LATE, opened), groups=(*evidence(1, ()).groups, side)),
        2: evidence(2, LATE, groups=(*evidence(2, ()).groups, side), doing=LOCKED),
    })  # fmt: skip
    verdict = judge(ranks, world=range(4))
    assert verdict.headline == (
        "Rank 2 has not come to all_reduce number 41 of group 0 at train.py:88; ranks 0,3 have"
        " waited there for 15 s; rank 1 has waited in all_gather number 5 of group 1 at"
        " train.py:33."
    )
    assert verdict.victims_do is not None
    assert "all_gather number 5 of group 1 at train.py:33 (rank 1)" in verdict.victims_do


def test_ranks_in_one_collective_share_what_is_known_of_it() -> None:
    """Who is late is worked out once for a collective, however many ranks wait in it."""
    ranks = {rank: waiting(rank, world_size=400) for rank in range(399)}
    waits = waits_of(ranks, range(400))
    assert len(waits) == 399
    assert len({id(wait.late) for wait in waits.values()}) == 1
    assert len({id(wait.members) for wait in waits.values()}) == 1


@pytest.mark.slow
def test_many_ranks_fit_on_a_line() -> None:
    """Of more sets of ranks than fit, the first ones are shown, and how many there are."""
    ranks = waiting_but({r: evidence(r, LATE, doing=LOCKED) for r in range(0, 4000, 2)}, ranks=4000)
    headline = judge(ranks, world=range(4000)).headline
    assert len(headline) < 400
    assert "Ranks 0,2,4,6" in headline
    assert "(2,000 in all)" in headline


def test_what_to_type_beside_other_jobs() -> None:
    """Where ranks of another job may be there, a rank is named with its job."""
    ranks = waiting_but({2: evidence(2, LATE, doing=LOCKED)})
    for has_others, name in ((False, "rank:2"), (True, "job:gpt-7/rank:2")):
        verdict = judge(ranks, world=range(4), job="gpt-7", has_others=has_others)
        assert verdict.next_steps[0].startswith(f"`probing -t {name} backtrace")
