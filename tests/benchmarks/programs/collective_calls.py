"""Times `all_reduce` with recording paused and going, in turn; prints what a call took, in ns.

Every rank of a job runs this program, and all do the same in the same order. Our part alone is
measured with torch's own backend that does nothing, as the quickest of many short bursts, which
others on the machine disturb little; gloo, whose threads do the work, as the median of its calls.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist

from probing.agent import lifecycle
from probing.settings import Settings
from tests.benchmarks.measures import measure_in_turn

CALLS, BURSTS, CALLS_OF_BURST = 200, 100, 20


class Timing:
    """The things that are measured in turn, each as ns per call."""

    def __init__(self, training: Any, backend: str) -> None:
        self._training = training
        self._backend = backend
        self._data = torch.ones(64, 2)

    def paused(self) -> float:
        """Nobody watches."""
        return self._time_calls()

    def recorded(self) -> float:
        """Each is on record."""
        self._training.start()
        try:
            return self._time_calls()
        finally:
            self._training.pause()

    def _time_calls(self) -> float:
        """One call's time."""
        self._call_for(CALLS_OF_BURST)  # what is new after a change is learnt now; all are here
        if self._backend == "fake":
            return min(self._call_for(CALLS_OF_BURST) for _ in range(BURSTS)) / CALLS_OF_BURST
        return statistics.median(self._call_for(1) for _ in range(CALLS))

    def _call_for(self, calls: int) -> int:
        """How long some calls take."""
        data = self._data
        started = time.perf_counter_ns()
        for _ in range(calls):
            dist.all_reduce(data, dist.ReduceOp.MAX)
        return time.perf_counter_ns() - started


def join(backend: str, meeting: str, rank: int, ranks: int) -> None:
    """Make the process group."""
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        del sys.modules["torch._C._distributed_c10d"].FakeWork.wait  # that of real works stays
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    else:
        where = f"file://{meeting}"
        dist.init_process_group(backend, init_method=where, rank=rank, world_size=ranks)


def main(
    *, backend: str, meeting: str, rank: int, ranks: int, rounds: int, with_kernels: bool
) -> dict[str, tuple[float, ...]]:
    """Measure."""
    join(backend, meeting, rank, ranks)
    agent = lifecycle.start(Settings.from_env(os.environ))
    if with_kernels:  # as for a job with the reducer of DistributedDataParallel
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    agent.training.pause()
    timing = Timing(agent.training, backend)
    things: dict[str, Callable[[], float]] = {
        "paused": timing.paused,
        "recorded": timing.recorded,
    }
    measure_in_turn(2, *things.values())  # warm up
    values = measure_in_turn(rounds, *things.values())
    if agent.training.problems():
        raise RuntimeError(f"the recorder gave up: {agent.training.problems()}")
    dist.destroy_process_group()
    return dict(zip(things, values, strict=True))


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
