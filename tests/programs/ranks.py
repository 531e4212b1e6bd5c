"""One rank of a job: does what its argument names, prints what it knows of it, and stays or ends.

Every rank prints `ready` before, and `done` when it is through; it then waits to be killed, so that
its agent can be asked.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch import distributed as dist

LATE_S = 0.3
"""How long rank 1 keeps the others waiting in each step."""


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def stay() -> None:
    print("done", flush=True)
    while True:
        time.sleep(0.05)


def missing() -> None:
    """The last rank stays away from the third all_reduce."""
    data = torch.ones(64, 2)
    for turn in range(3):
        if turn == 2 and dist.get_rank() == dist.get_world_size() - 1:
            stay()
        dist.all_reduce(data)
        tell(turn=turn)


def without_end() -> None:
    """One all_reduce after the other."""
    while True:
        dist.all_reduce(torch.ones(2))
        time.sleep(0.02)


def every_kind() -> None:
    """One of each, in the default group and in a group of the even ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data, wide = torch.ones(4, 2), torch.ones(4 * size, 2)
    pieces = [torch.ones(4, 2) for _ in range(size)]
    dist.all_reduce(data, dist.ReduceOp.MAX)
    dist.broadcast(data, 1)
    dist.reduce(data, 2)
    dist.all_gather(pieces, data)
    dist.all_gather_into_tensor(wide, data)
    dist.reduce_scatter_tensor(data, wide)
    dist.reduce_scatter(data, pieces)
    dist.gather(data, pieces if rank == 1 else None, 1)
    dist.scatter(data, pieces if rank == 1 else None, 1)
    dist.all_to_all_single(torch.ones(4 * size, 2), wide)
    dist.barrier()
    dist.all_gather_object([None] * size, {"rank": rank})
    work = dist.all_reduce(data, async_op=True)
    assert work is not None
    work.wait()
    evens = dist.new_group(list(range(0, size, 2)), group_desc="evens")
    if rank % 2 == 0:
        dist.broadcast(data, 2, group=evens)
    tell(wide=wide.sum().item())


def messages() -> None:
    """Each rank sends to the next and receives from the one before, twice."""
    rank, size = dist.get_rank(), dist.get_world_size()
    before, after = (rank - 1) % size, (rank + 1) % size
    for _ in range(2):
        sending = dist.isend(torch.ones(8), after)
        dist.recv(torch.empty(8), before)
        assert sending is not None
        sending.wait()
    ops = [
        dist.P2POp(dist.isend, torch.ones(3), after),
        dist.P2POp(dist.irecv, torch.empty(3), before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def trained(model: torch.nn.Module, steps: int = 4) -> None:
    """A few steps; rank 1 takes long for what lies before the exchange of the gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = model(torch.ones(8, 64)).square().mean()
        if dist.get_rank() == 1:
            time.sleep(LATE_S)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    tell(loss=loss.item())


def data_parallel() -> None:
    """DistributedDataParallel, whose reducer calls for collectives from C++."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    model = torch.nn.parallel.DistributedDataParallel(net)
    trained(model)
    data = torch.ones(2)
    dist.all_reduce(data)


def by_hand() -> None:
    """Gradients are averaged by the script, and evaluation begins with a collective."""
    net = torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        net(torch.ones(8, 64)).square().mean().backward()
        if dist.get_rank() == 1:
            time.sleep(LATE_S)
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


def functional() -> None:
    """Collectives that torch.compile knows, called from C++ in a compiled function as in others."""
    from torch.distributed import _functional_collectives as functional

    def twice(data: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(data)
        return data * 2

    whole = dist.distributed_c10d._get_default_group()
    compiled = torch.compile(twice, backend="aot_eager", fullgraph=True)
    linear = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    for _ in range(4):
        linear(torch.ones(2, 4)).sum().backward()
        functional.wait_tensor(functional.all_reduce(torch.ones(4), "sum", whole))
        optimizer.step()
    total = compiled(torch.ones(3))
    counters = torch._dynamo.utils.counters
    breaks = sum(counters["graph_break"].values())
    tell(total=total.tolist(), graphs=counters["stats"]["unique_graphs"], breaks=breaks)


def of_every_function() -> None:
    """One of each functional collective, each waited for where it is."""
    from torch.distributed import _functional_collectives as functional

    whole, data = dist.distributed_c10d._get_default_group(), torch.ones(8, 3)
    calls = {
        "all_reduce": (data, "max", whole),
        "all_gather_tensor": (data, 0, whole),
        "reduce_scatter_tensor": (data, "sum", 0, whole),
        "all_to_all_single": (data, None, None, whole),
        "broadcast": (data, 1, whole),
        "all_reduce_coalesced": ([data, data], "min", whole),
    }
    for name, arguments in calls.items():
        result = getattr(functional, name)(*arguments)
        for tensor in result if isinstance(result, list) else [result]:
            functional.wait_tensor(tensor)


def functional_messages() -> None:
    """Messages that torch.compile knows, in a ring: one by one, and both in one call."""
    from torch.distributed import _functional_collectives as functional

    tell(knows_messages=hasattr(functional, "isend_inplace"))
    if not hasattr(functional, "isend_inplace"):
        return
    rank, size = dist.get_rank(), dist.get_world_size()
    before, after = (rank - 1) % size, (rank + 1) % size
    data = torch.empty(9)
    sent = functional.isend_inplace(torch.full((9,), float(rank)), after)
    functional.wait_tensor(functional.irecv_inplace(data, before))
    functional.wait_tensor(sent)
    name = dist.distributed_c10d._get_default_group().group_name
    both = [torch.full((11,), float(rank)), torch.empty(11)]
    for tensor in functional.batch_p2p_ops_inplace(
        ["isend", "irecv"], [after, before], [0, 0], both, name
    ):
        functional.wait_tensor(tensor)
    assert data.tolist() == [before] * 9
    assert both[1].tolist() == [before] * 11


def sharded() -> None:
    """What DTensor and FSDP2 call for."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parts = DTensor.from_local(torch.ones(2, 7), mesh, [Shard(0)])
    full = parts.redistribute(mesh, [Replicate()]).to_local()
    linear = torch.nn.Linear(16, 12)
    fully_shard(linear, mesh=mesh)
    linear(torch.ones(2, 16)).sum().backward()
    norm: Any = torch.nn.utils.clip_grad_norm_(linear.parameters(), 1.0)
    tell(rows=len(full), norm=norm.full_tensor().item())


def refused() -> None:
    """A collective that torch refuses."""
    try:
        dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND)
    except (RuntimeError, ValueError) as error:
        tell(refused=str(error))


RECORDED = (
    every_kind,
    messages,
    data_parallel,
    by_hand,
    functional,
    of_every_function,
    functional_messages,
    sharded,
)


def healthy() -> None:
    """All of them but the one that hangs, one after the other."""
    for way in (*RECORDED, refused):
        way()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print("ready", flush=True)
    globals()[sys.argv[1]]()
    stay()
