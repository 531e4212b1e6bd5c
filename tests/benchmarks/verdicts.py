"""How the cost of a verdict grows with the number of ranks.

    python -m tests.benchmarks.verdicts

Rules of this file: evidence is made up, and nothing is asked of any process. What counts is the
ratio: ten times as many ranks should cost about ten times as much. Each number of ranks is judged
in a process of its own, because memory once used is not given back.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator

from probing.diagnosis.hang import Call, Doing, Group, RankEvidence, judge

_SIZES = (1000, 10_000)
_CALLS = 32
_NODE = 8
_LATE = 5
_SECOND = 10**9


def main() -> None:
    """Print a row of Markdown for each number of ranks, and the ratio."""
    print("| ranks | seconds | MB with the evidence |\n| --- | --- | --- |")
    seconds = []
    for size in _SIZES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            spent_s, megabytes = pool.apply(measure, (size,))
        seconds.append(spent_s)
        print(f"| {size:,} | {spent_s:.2f} | {megabytes:.0f} |")
    times = _SIZES[-1] // _SIZES[0]
    print(f"{times} times the ranks cost {seconds[-1] / seconds[0]:.1f} times the time")


def measure(size: int) -> tuple[float, float]:
    """Processor seconds of one verdict, and the most memory that its process has used."""
    evidence = list(_ranks(size))
    began = time.process_time()
    verdict = judge(evidence, world=range(size))
    spent_s = time.process_time() - began
    assert [cause.rank for cause in verdict.causes] == [_LATE]
    return spent_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _ranks(size: int) -> Iterator[RankEvidence]:
    """Ranks in two groups each, all of which wait for one."""
    world = Group(name="0", size=size, ranks=tuple(range(size)))
    waits = Doing(kind="collective", words="is waiting for the other ranks", where="train.py:88")
    loads = Doing(kind="loader", words="is in the DataLoader", where="train.py:71")
    for rank in range(size):
        first = rank - rank % _NODE
        node = Group(name=f"n{first}", size=_NODE, ranks=tuple(range(first, first + _NODE)))
        is_late = rank == _LATE
        yield RankEvidence(
            rank=rank,
            pid=1 + rank,
            endpoint=f"rank:{rank}",
            world_size=size,
            calls=tuple(_calls(node.name, is_late=is_late)),
            groups=(world, node),
            step=40,
            moved=False,
            still_s=15.0,
            median_step_s=0.5,
            doing=loads if is_late else waits,
        )


def _calls(node: str, *, is_late: bool) -> Iterator[Call]:
    for seq in range(1, _CALLS + 1):
        age_s, start_ns = 15.0 + _CALLS - seq, seq * _SECOND
        is_last = seq == _CALLS
        yield Call(group=node, seq=seq, op="all_gather", age_s=age_s, start_ns=start_ns - 1000)
        if not (is_last and is_late):
            yield Call(
                group="0", seq=seq, op="all_reduce", shapes="[64]", dtypes="float32",
                caller="train.py:88", age_s=age_s, start_ns=start_ns, is_open=is_last,
            )  # fmt: skip


if __name__ == "__main__":
    main()
