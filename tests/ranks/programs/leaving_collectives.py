"""Trains as the only rank of a job; the agent comes late, or not, and goes; prints what is left."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed import all_reduce, distributed_c10d

import probing
from probing.agent import lifecycle

OPERATORS = (
    "c10d::allreduce_",
    "c10d::send",
    "c10d::_allgather_base_",
    "_c10d_functional::all_reduce",
    "_c10d_functional::wait_tensor",
)
C10D: Any = sys.modules["torch._C._distributed_c10d"]


def standing() -> dict[str, Any]:
    """All that the agent may put something in the place of."""
    return {
        "group": dict(vars(C10D.ProcessGroup)),
        "work": dict(vars(C10D.Work)),
        "module": {k: v for k, v in vars(distributed_c10d).items() if callable(v)},
        "ddp": dict(vars(torch.nn.parallel.DistributedDataParallel)),
        "kernels": [has_kernel(name) for name in OPERATORS],
    }


def has_kernel(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "BackendSelect")


def meet() -> None:
    meeting = f"file://{tempfile.mkdtemp()}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)


def train() -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    all_reduce(torch.ones(3))


if __name__ == "__main__":
    late = sys.argv[1] == "late"
    before = standing()
    if late:
        meet()
    probing.start()
    agent = lifecycle.current()
    assert agent is not None
    if not late:
        meet()
    train()
    had = [has_kernel(name) for name in OPERATORS]
    sources = {report.source: report for report in agent.training.source_reports()}
    faults = sources["collectives"].faults
    probing.stop()
    after = standing()
    same = {part: after[part] == before[part] for part in before}
    train()
    print(json.dumps({"same": same, "had": had, "faults": faults, "left": standing()["kernels"]}))
