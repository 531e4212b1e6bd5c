"""Stacks, facts and results of many ranks: what is equal is one, and the odd one is named."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from probing.cli.render.ranks.stack_classes import render_folded_classes
from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import AT_ONCE
from probing.cluster.ranks.differences import Fact, RankFacts, compare_facts
from probing.cluster.ranks.evaluations import fold_results
from probing.cluster.ranks.naming import Rank, rank_words
from probing.cluster.ranks.question import Asking
from probing.cluster.ranks.same_models import owners_of
from probing.cluster.ranks.stack_classes import MAIN, RankStacks, merge_stacks
from probing.cluster.ranks.stack_tree import stack_trees
from probing.messages.common import EvalResult, Frame
from tests.unit.ranks.rank_samples import AT_REDUCE, AT_SLEEP, ENTRY, one_asleep, stacks, thread

pytestmark = pytest.mark.anypython


def test_ranks_are_named_in_words() -> None:
    """Numbers become sets, and what has no number goes by its name, behind them."""
    assert rank_words([7]) == "rank 7"
    assert rank_words([2, 0, 1, 5]) == "ranks 0-2,5"
    assert rank_words(["b", 3, "a", 2]) == "ranks 2-3 and a, b"


def test_equal_stacks_are_one_class_and_the_odd_one_comes_first() -> None:
    """64 ranks of which one sleeps give two classes, that of the sleeper first."""
    merged = merge_stacks(one_asleep(64, odd=7), looks=3)
    odd, most = merged.classes
    assert odd.ranks == (7,)
    assert most.ranks == tuple(rank for rank in range(64) if rank != 7)
    assert most.waiting == ("waiting in all_reduce for other ranks",)
    assert (merged.idle_threads, len(merged.idle_ranks)) == (64, 64)


def test_lines_tell_stacks_apart_only_when_asked() -> None:
    """Ranks at two lines of one function are one class with both lines, or two classes."""
    other = dataclasses.replace(AT_SLEEP[0], lineno=13, line="time.sleep(1)")
    ranks = [stacks(0, (thread(*AT_SLEEP),)), stacks(1, (thread(other, *AT_SLEEP[1:]),))]
    (one,) = merge_stacks(ranks).classes
    assert (one.frames[-1].linenos, one.frames[-1].line) == ((12, 13), None)
    assert one.frames[-2].linenos == (30,)
    assert len(merge_stacks(ranks, by_line=True).classes) == 2


def test_how_a_stack_was_had_makes_no_class() -> None:
    """py-spy's bare names, C functions and another folder of libraries do not part ranks."""
    inside = [dataclasses.replace(frame, func=f"Trainer.{frame.func}") for frame in AT_REDUCE]
    native = Frame(func="poll", file="libc.so.6", lineno=0, kind="native")
    moved = dataclasses.replace(
        AT_REDUCE[0], file=AT_REDUCE[0].file.replace("/env/", "/elsewhere/venv/")
    )
    ranks = [
        stacks(0, (thread(*inside),)),
        stacks(1, (thread(native, moved, *AT_REDUCE[1:]),)),
    ]
    (one,) = merge_stacks(ranks).classes
    assert one.ranks == (0, 1)
    assert one.frames[-1].func == "Trainer.all_reduce"
    assert len(merge_stacks(ranks, native=True).classes) == 2


def test_looks_tell_stuck_from_moving() -> None:
    """A rank that is at the same lines in all looks is stuck; one at another line moves."""
    later = (dataclasses.replace(AT_REDUCE[0], lineno=3005), *AT_REDUCE[1:])
    ranks = [
        stacks(0, (thread(*later),), (thread(*AT_REDUCE),)),
        stacks(1, (thread(*AT_REDUCE),), (thread(*AT_REDUCE),)),
    ]
    (one,) = merge_stacks(ranks, looks=2).classes
    assert (one.same, one.moving) == ((1,), (0,))
    (single,) = merge_stacks(ranks[1:], looks=1).classes
    assert (single.same, single.moving) == ((), ())


def test_a_rank_without_a_stack_is_a_line_of_its_own() -> None:
    """Who gave no stack is named with the reason, and is in no class."""
    ranks = [*one_asleep(2, odd=0), RankStacks(rank=2, why="it does not answer")]
    merged = merge_stacks(ranks)
    assert merged.without == ((2, "it does not answer"),)
    assert merged.asked == (0, 1, 2)
    assert not any(2 in one.ranks for one in merged.classes)


def test_the_tree_says_once_what_stacks_share() -> None:
    """The common frames come once, and the branches part at the line that was taken."""
    (tree,) = stack_trees(merge_stacks(one_asleep()).classes)
    assert [frame.func for frame in tree.frames] == [frame.func for frame in reversed(ENTRY)]
    assert [branch.ranks for branch in tree.branches] == [(2,), (0, 1, 3)]
    assert [f.linenos for f in tree.branches[0].frames] == [(30,), (12,)]


def test_the_folded_format_has_the_ranks_as_root_and_counts_stacks() -> None:
    """One line per class: ranks, frames from the outermost on, number of threads."""
    lines = render_folded_classes(merge_stacks(one_asleep())).splitlines()
    assert lines[0].startswith("rank 2;<module> (train.py:50);main (train.py:40);")
    assert lines[0].endswith(";slow (train.py:12) 1")
    assert lines[1].startswith("ranks 0-1,3;")
    assert lines[1].endswith(" 3")


def test_other_threads_come_after_the_main_ones() -> None:
    """Threads are classed by their names without numbers, behind the main threads."""
    both = [
        stacks(rank, (thread(*AT_SLEEP), thread(*AT_REDUCE, name=f"sender_{rank}", number=2)))
        for rank in range(3)
    ]
    roles = [(one.thread, one.ranks) for one in merge_stacks(both).classes]
    assert roles == [(MAIN, (0, 1, 2)), ("sender_N", (0, 1, 2))]


def facts(rank: int, *, step: int | None = 5, sharded: int = 0, **values: str | None) -> RankFacts:
    """A rank with one fact of each kind that is named."""
    made = tuple(Fact(kind=kind, name="x", value=value) for kind, value in values.items())
    return RankFacts(rank=rank, facts=made, step=step, sharded=sharded)


def test_the_rank_that_differs_is_named() -> None:
    """One other checksum among four is the odd one; two against two blame nobody."""
    ranks = [facts(rank, parameter="bb" if rank == 3 else "aa", version="1") for rank in range(4)]
    compared = compare_facts(ranks)
    (one,) = compared.differences
    assert (one.kind, one.odd) == ("parameter", (3,))
    assert [(group.value, group.ranks) for group in one.groups] == [("bb", (3,)), ("aa", (0, 1, 2))]
    assert compared.equal == {"version": 1}
    even = compare_facts([facts(rank, version=str(rank % 2)) for rank in range(4)])
    assert even.differences[0].odd == ()
    assert even.odd == ()


def test_parameters_of_different_steps_are_not_compared() -> None:
    """A rank that looked at another step is told apart, and its parameters blame nobody."""
    ranks = [facts(rank, step=6 if rank == 3 else 5, parameter=str(rank == 3)) for rank in range(4)]
    compared = compare_facts(ranks)
    assert compared.differences == ()
    assert [(group.value, group.ranks) for group in compared.steps] == [
        ("6", (3,)), ("5", (0, 1, 2)),
    ]  # fmt: skip


@pytest.mark.slow
def test_ranks_that_look_together_are_all_asked_at_once() -> None:
    """More ranks than are asked at a time each wait for all others, as at the end of one step."""
    members = _ranks(AT_ONCE + 8)
    meeting = threading.Barrier(len(members))
    asking = Asking(members=members, timeout_s=60)
    outcomes = asking.ask(lambda _, __: meeting.wait(50), is_together=True)
    assert {outcome.state for outcome in outcomes} == {"answered"}


@pytest.mark.slow
def test_no_more_are_asked_at_a_time_than_one_process_does_with_ease() -> None:
    """Of many ranks 256 are in hand; who is asked last is answered, too."""
    full = threading.Barrier(AT_ONCE)
    lock, in_hand, most = threading.Lock(), 0, 0

    def question(_: object, member: Member) -> None:
        nonlocal in_hand, most
        with lock:
            in_hand += 1
            most = max(most, in_hand)
        if (member.rank or 0) < AT_ONCE:
            full.wait(50)
        with lock:
            in_hand -= 1

    outcomes = Asking(members=_ranks(AT_ONCE + 8), timeout_s=60).ask(question)
    assert {outcome.state for outcome in outcomes} == {"answered"}
    assert most == AT_ONCE


def _ranks(count: int) -> tuple[Member, ...]:
    """So many ranks, where nobody is."""
    member = Member(rank=0, host="a", pid=1, world_size=count, endpoint="127.0.0.1:9")
    return tuple(dataclasses.replace(member, rank=rank) for rank in range(count))


def test_a_secret_is_never_shown() -> None:
    """Of a secret that differs only the ranks are told."""
    made = [
        RankFacts(
            rank=rank,
            facts=(Fact(kind="environment", name="TORCH_KEY", value=f"v{rank}", is_secret=True),),
        )
        for rank in range(2)
    ]
    (one,) = compare_facts(made).differences
    assert one.is_secret
    assert [group.value for group in one.groups] == [None, None]


def test_what_is_missing_on_a_rank_differs_and_hosts_do_not_count() -> None:
    """A variable that one rank lacks is a difference; another host is no fault."""
    ranks = [facts(0, place="a"), facts(1, place="b")]
    compared = compare_facts(ranks)
    assert compared.differences == ()
    assert [one.kind for one in compared.places] == ["place"]
    some = Fact(kind="version", name="torch", value="2.13")
    lacking = compare_facts([
        RankFacts(rank=0, facts=(some, Fact(kind="version", name="apex", value="1"))),
        RankFacts(rank=1, facts=(some,)),
    ])  # fmt: skip
    assert [(one.name, [g.value for g in one.groups]) for one in lacking.differences] == [
        ("apex", ["1", None])
    ]


def result(value: str, *, step: int | None = 3, error: str | None = None) -> EvalResult:
    """What an eval came to."""
    return EvalResult(
        output="", value=value, error=error, error_type=None, omitted_bytes=0, duration_s=0.1,
        waited_s=0.2, where="safe point", step=step,
    )  # fmt: skip


def test_equal_results_are_one_and_the_odd_one_comes_first() -> None:
    """Only what came of the code counts; the steps at which it ran are told."""
    results: dict[Rank, EvalResult] = {
        rank: result("2" if rank == 1 else "1", step=3 + rank // 3) for rank in range(4)
    }
    odd, most = fold_results(results)
    assert (odd.ranks, odd.is_odd) == ((1,), True)
    assert (most.ranks, most.is_odd, most.steps) == ((0, 2, 3), False, (3, 4))
    failed = fold_results({0: result("1"), 1: result("1", error="boom")})
    assert [(one.ranks, one.is_odd) for one in failed] == [((0,), False), ((1,), False)]


def _checksums(**models: str) -> list[dict[str, Any]]:
    """The rows of models of one class, each of one parameter."""
    same = {"kind": "parameter", "root": "Net", "parameter": "w", "is_shard": False}
    return [{**same, "model": name, "checksum": held} for name, held in models.items()]


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        # Rank 0 has evaluated an average of the parameters before it trained.
        ({"Net": "ema", "Net2": "1"}, {"Net": "1"}, {"Net": "Net2"}),
        ({"Net": "ema", "Net2": "1"}, {"Net": "1", "Net2": "ema"}, {"Net": "Net2", "Net2": "Net"}),
        # Whose other model is which, nobody knows.
        ({"Net": "ema", "Net2": "1"}, {"Net": "1", "Net2": "best"}, {"Net": "Net2", "Net2": None}),
        # Models that are alike keep their names, and so do those that are like no other.
        ({"Net": "1", "Net2": "1"}, {"Net2": "1"}, {"Net2": "Net2"}),
        ({"G": "1", "D": "9"}, {"G": "2", "D": "9"}, {"G": "G", "D": "D"}),
        ({"Net": "ema", "Net2": "1"}, {"Net": "2"}, {"Net": "Net"}),
    ],
)  # fmt: skip
def test_models_of_one_class_may_change_names(
    first: dict[str, str], second: dict[str, str], names: dict[str, str | None]
) -> None:
    """Equal parameters tell which of them are the same; the names do where none are equal."""
    _, found = owners_of([_checksums(**first), _checksums(**second)])
    assert found == {("Net", model): name for model, name in names.items()}
