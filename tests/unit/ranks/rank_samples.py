"""Ranks made by hand: stacks, steps and collectives with a known answer."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from probing.cluster.ranks.differences import Fact, RankFacts
from probing.cluster.ranks.naming import Rank
from probing.cluster.ranks.slow.stragglers import find_stragglers
from probing.cluster.ranks.slow.times import Collective, RankTimes, Span, Step
from probing.cluster.ranks.stack_classes import RankStacks
from probing.messages.common import Backtrace, EvalResult, Frame, ThreadStack

STEP_S = 0.3
_MS = 1_000_000


def frame(func: str, lineno: int, file: str = "/job/train.py", line: str | None = None) -> Frame:
    """A frame of the job."""
    return Frame(func=func, file=file, lineno=lineno, line=line)


ENTRY = (frame("main", 40, line="step(batch)"), frame("<module>", 50, line="main()"))
REDUCE = frame(
    "all_reduce", 3001, "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
    "work.wait()",
)  # fmt: skip
AT_REDUCE = (REDUCE, frame("step", 31, line="dist.all_reduce(x)"), *ENTRY)
AT_SLEEP = (frame("slow", 12, line="time.sleep(600)"), frame("step", 30, line="slow()"), *ENTRY)


def thread(
    *frames: Frame, name: str = "MainThread", number: int = 1, waiting: str = ""
) -> ThreadStack:
    """A thread; that of number 1 is the main one."""
    return ThreadStack(
        thread_id=number, name=name, is_main=number == 1, frames=frames, waiting=waiting or None
    )


def stacks(rank: int, *looks: tuple[ThreadStack, ...]) -> RankStacks:
    """A rank and its threads at each look."""
    traces = [Backtrace(pid=100 + rank, source="agent", threads=threads) for threads in looks]
    return RankStacks(rank=rank, looks=tuple(traces))


def one_asleep(ranks: int = 4, odd: int = 2) -> list[RankStacks]:
    """All ranks but one in an all_reduce, and that one asleep; each with an idle pool thread."""
    pool = thread(
        frame("_worker", 81, "/usr/lib/python3.11/concurrent/futures/thread.py"),
        name="ThreadPoolExecutor-0_0", number=2, waiting="idle: a pool's thread without work",
    )  # fmt: skip
    waits = thread(*AT_REDUCE, waiting="waiting in all_reduce for other ranks")
    sleeps = thread(*AT_SLEEP, waiting="sleeping (time.sleep)")
    return [stacks(rank, *[(sleeps if rank == odd else waits, pool)] * 3) for rank in range(ranks)]


def _all_seen() -> list[RankStacks]:
    """One asleep, one on the move, one silent, and a name with a control character."""
    ranks = one_asleep(6, odd=2)
    moved = dataclasses.replace(REDUCE, lineno=3005)
    looks = [thread(moved, *AT_REDUCE[1:]), thread(*AT_REDUCE, waiting="waiting\x1b[2J")]
    sender = thread(*AT_SLEEP[:1], name="sender-1", number=2)
    ranks[4] = dataclasses.replace(
        stacks(4, *[(look, sender) for look in looks]), why="it was stopped by a signal"
    )
    return [*ranks, RankStacks(rank=6, why="it was expected and is not seen")]


RANKS_SEEN = _all_seen()


def ddp_job(
    ranks: int = 4,
    steps: int = 20,
    *,
    extra_s: Callable[[int, int], float] = lambda _rank, _step: 0.0,
    noise_s: float = 0.001,
    hosts: int = 1,
    clock_s: Callable[[int], float] = lambda _host: 0.0,
    phase: str = "backward",
    waits: str = "blocked",
    seed: int = 7,
) -> list[RankTimes]:
    """A data parallel job: one all_reduce at the end of each backward pass equalises all steps.

    Args:
        extra_s: What a rank needs more in a step, in `phase`.
        clock_s: By how much the clock of a host is ahead.
        waits: How waiting shows: as time `blocked` in a collective, as `sync` of a step, or not
            at all, but for the order of `arrival`.
    """
    dice = random.Random(seed)
    told: list[tuple[list[Step], list[Collective], list[Span]]] = [
        ([], [], []) for _ in range(ranks)
    ]
    now_s = 1_000_000.0
    for step in range(1, steps + 1):
        own = [_own(dice, noise_s, phase, extra_s(rank, step)) for rank in range(ranks)]
        enter = [now_s + p["forward"] + p["backward"] for p in own]
        leave = max(enter) + 0.002
        ends = [leave + p["optimizer"] for p in own]
        for rank, (entered, p) in enumerate(zip(enter, own, strict=True)):
            ahead = clock_s(rank * hosts // ranks)
            _tell(told[rank], step, (now_s + ahead, entered + ahead, leave + ahead), p, waits)
        now_s = sum(ends) / ranks
    return [
        RankTimes(
            rank=rank, host=f"node{rank * hosts // ranks}", device=rank % (ranks // hosts),
            steps=tuple(s), collectives=tuple(c), spans=tuple(spans),
        )
        for rank, (s, c, spans) in enumerate(told)
    ]  # fmt: skip


def _own(dice: random.Random, noise_s: float, phase: str, extra_s: float) -> dict[str, float]:
    """What a rank does itself in a step."""
    times = {"forward": 0.03, "backward": 0.06, "optimizer": 0.004}
    found = {name: time + abs(dice.gauss(0, noise_s)) for name, time in times.items()}
    found[phase] += extra_s
    return found


def _tell(
    told: tuple[list[Step], list[Collective], list[Span]],
    step: int,
    moments: tuple[float, float, float],
    own: dict[str, float],
    waits: str,
) -> None:
    """Write down one step of one rank."""
    begin, enter, leave = moments
    blocked = leave - enter
    backward = (begin + own["forward"], leave)
    is_apart = waits == "sync"
    phases = {**own, "backward": own["backward"] + (0.0 if is_apart else blocked)}
    told[0].append(
        Step(
            step=step,
            start_ns=_ns(begin),
            duration_s=sum(own.values()) + blocked,
            phases=phases,
            sync_s=blocked if is_apart else None,
        )
    )
    told[1].append(
        Collective(
            group="0",
            seq=step,
            op="all_reduce",
            step=step,
            start_ns=_ns(enter),
            end_ns=_ns(leave),
            blocked_s=blocked if waits == "blocked" else None,
            is_async=True,
        )
    )
    told[2].append(Span(phase="forward", start_ns=_ns(begin), end_ns=_ns(backward[0])))
    told[2].append(Span(phase="backward", start_ns=_ns(backward[0]), end_ns=_ns(backward[1])))
    told[2].append(
        Span(phase="optimizer", start_ns=_ns(leave), end_ns=_ns(leave + own["optimizer"]))
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _extra(rank: int, step: int) -> float:
    """All of the second host slow, and rank 0 every fifth step."""
    if rank in (2, 3):
        return 0.1 * (rank - 1)
    return 0.5 if rank == 0 and step % 5 == 0 else 0.0


STRAGGLERS = find_stragglers(
    ddp_job(8, extra_s=_extra, hosts=4, clock_s=lambda host: 1.5 if host == 1 else 0.0)
)


def _facts(rank: int) -> RankFacts:
    """What is so on a rank: the third has other weights and versions, the last its own step."""
    is_odd = rank == 2
    made = [
        Fact(
            kind="parameter",
            name=f"blocks.{number}.weight\x1b[2J",
            value=f"[64,64] float32 crc32:{0xABC0 + number + is_odd:08x}",
            about="[64,64] float32",
        )
        for number in range(10)
    ]
    made += [
        Fact(kind="version", name="torch", value="2.13.0" if is_odd else "2.12.1"),
        Fact(kind="version", name="python", value="3.11.9"),
        Fact(kind="environment", name="NCCL_DEBUG", value="INFO" if is_odd else None),
        Fact(kind="environment", name="TORCH_TOKEN", value=str(rank // 2), is_secret=True),
        Fact(kind="setting", name="overhead", value="2.0" if is_odd else "1.0"),
        Fact(kind="place", name="host", value=f"node{rank // 2}"),
    ]
    return RankFacts(rank=rank, facts=tuple(made), step=121 if rank == 3 else 120, sharded=4)


FACTS = [_facts(rank) for rank in range(4)]


def _result(rank: int) -> EvalResult:
    """Two ranks say the same, one prints something, one fails."""
    return EvalResult(
        output="looking\x1b[2J\nstill looking\n" if rank == 2 else "",
        value=None if rank == 3 else "0.001",
        error="Traceback (most recent call last):\nValueError: no" if rank == 3 else None,
        error_type="ValueError" if rank == 3 else None,
        omitted_bytes=7 if rank == 2 else 0,
        duration_s=0.1,
        waited_s=0.2,
        where="safe point",
        step=12 if rank == 1 else 13,
    )


RESULTS: dict[Rank, EvalResult] = {rank: _result(rank) for rank in range(4)}
