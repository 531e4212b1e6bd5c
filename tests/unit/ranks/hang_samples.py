"""Ranks as `probing hang` sees them, for tests of its rules and of its text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from probing.cli.render.ranks.hang import render_verdict, render_verdicts
from probing.diagnosis.hang import Call, Doing, Group, RankEvidence, judge

WORLD = Group(name="0", description="default", backend="gloo", size=4, ranks=(0, 1, 2, 3))
LOOP = "train.py:88"
STILL_S = 15.0
SECOND = 10**9


def call(seq: int, *, op: str = "all_reduce", is_open: bool = False, **other: Any) -> Call:
    """One collective of the default group, that of the training loop if nothing else is said."""
    facts = {
        "group": "0",
        "shapes": "[64,128]",
        "dtypes": "float32",
        "reduce_op": "sum",
        "caller": LOOP,
        "age_s": STILL_S + 41 - seq,
        "start_ns": seq * SECOND,
        "thread_id": 7,
        **other,
    }
    return Call(seq=seq, op=op, is_open=is_open, **facts)


def history(last: int, *, first: int = 31) -> tuple[Call, ...]:
    """Collectives that have ended."""
    return tuple(call(seq) for seq in range(first, last + 1))


WAITING = Doing(
    kind="collective",
    words="is waiting for the other ranks in the collective all_reduce",
    where="train.py:88 in train",
    stack=("all_reduce (torch/distributed/distributed_c10d.py:3100)", "train (train.py:88)"),
)
LOADING = Doing(
    kind="loader",
    words="is in the DataLoader (waiting for a batch from a DataLoader worker)",
    where="train.py:71 in batches",
    stack=("_try_get_data (torch/utils/data/dataloader.py:1300)", "batches (train.py:71)"),
)

SAVING = Doing(
    kind="checkpoint", words="is in its checkpoint code (writing to a file)", where="train.py:70"
)


def waiting(rank: int, seq: int = 41, **changes: Any) -> RankEvidence:
    """A rank that waits in the all_reduce of the training loop."""
    opened = call(seq, is_open=True, age_s=STILL_S)
    facts = {"calls": (*history(seq - 1), opened), "doing": WAITING, **changes}
    return evidence(rank, facts.pop("calls"), **facts)


def evidence(rank: int, calls: tuple[Call, ...], **changes: Any) -> RankEvidence:
    """A rank of a job of four that has stood still."""
    plain = RankEvidence(
        rank=rank,
        host="node1",
        pid=4100 + rank,
        endpoint=f"rank:{rank}",
        world_size=4,
        calls=calls,
        groups=(WORLD,),
        step=40,
        moved=False,
        still_s=STILL_S,
        median_step_s=0.5,
        doing=LOADING,
    )
    return dataclasses.replace(plain, **changes)


def waiting_but(others: Mapping[int, RankEvidence], *, ranks: int = 4) -> list[RankEvidence]:
    """Ranks that wait in the training loop, but for some."""
    return [others.get(rank) or waiting(rank) for rank in range(ranks)]


LATE = history(40)
COVERAGE = "asked 4 ranks: all answered"


def draw_hang(width: int | None) -> str:
    """A rank that is missing from a collective, and two that still follow."""
    verdict = judge(waiting_but({2: evidence(2, LATE)}), coverage=COVERAGE)
    return render_verdict(verdict, width=width)


def draw_early() -> str:
    """The same so early that it may be nothing."""
    ranks = [dataclasses.replace(e, still_s=3.2) for e in waiting_but({2: evidence(2, LATE)})]
    return render_verdict(judge(ranks, coverage=COVERAGE), width=100)


def draw_mismatch() -> str:
    """A rank with another op, and a control character in its line."""
    opened = call(
        41, op="broadcast", reduce_op=None, root=0, is_open=True, caller="\x1b[31mtrain.py:90",
        age_s=STILL_S,
    )  # fmt: skip
    ranks = waiting_but({1: evidence(1, (*LATE, opened), doing=WAITING, not_finite=17)})
    return render_verdict(judge(ranks, coverage=COVERAGE), width=80)


def draw_several() -> str:
    """A job that has ended, and one that goes on."""
    killed = evidence(
        1, LATE, state="dead", moved=None, doing=None, ending="it ended with ValueError: bad label",
        ended_ns=1,
    )  # fmt: skip
    others = [
        dataclasses.replace(
            evidence(rank, LATE, state="dead", moved=None, doing=None, died_of_peers=True),
            ending="it ended with RuntimeError: Connection closed by peer",
            ended_ns=2 + rank,
        )
        for rank in (0, 2, 3)
    ]
    moving = [dataclasses.replace(e, moved=True, still_s=0.1) for e in waiting_but({})]
    verdicts = [
        judge(
            [killed, *others], coverage=f"{COVERAGE} (ranks 0-3 from their records)", job="first"
        ),
        judge(moving, coverage=COVERAGE, job="second"),
    ]
    return render_verdicts(verdicts, width=100)


def draw_process() -> str:
    """One process that no other belongs to."""
    one = evidence(0, (), world_size=None, groups=(), module="blocks.3.attn (Attention)")
    one = dataclasses.replace(one, rank=None)
    return render_verdict(judge([one], coverage="asked 1 process: all answered"), width=100)
