"""Collectives of NCCL, with the one rank that one device allows."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from probing.ring.format import DONE, FAILED
from tests.gpu.devices import Device, FakeDevice
from tests.gpu.findings import Finding, expect, left_out, limit
from tests.gpu.trainings import Recorded, wait_for

_BEHIND_S, _HANGS_S = 1.0, 6.0
_SELDOM_S = 0.01
"""Who has asked just now does not ask again."""
_MESSAGES = frozenset({"send", "recv"})


def _join(device: Device) -> None:
    """Be the only rank of a job."""
    from torch._C._distributed_c10d import HashStore

    backend = "nccl"
    if isinstance(device, FakeDevice):
        from tests.harness.fake_nccl import install

        install(device.cuda)
        backend = "gloo"
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def _states(recorded: Recorded) -> list[tuple[str, bool]]:
    """Which collectives are open."""
    return [(row["op"], row["is_open"]) for row in recorded.rows("collectives")]


def _ends(recorded: Recorded) -> list[str]:
    """How each collective has ended."""
    words = {DONE: "DONE", FAILED: "FAILED"}
    return [words.get(row["state"], "is open") for row in recorded.rows("collectives")]


def nccl(device: Device) -> Iterator[Finding]:
    """A collective is open until the device is past it, however it is called."""
    recorded = Recorded()
    device.begin()
    _join(device)
    x = torch.ones(1024, device=device.here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    device.sleep(_BEHIND_S)
    dist.all_reduce(x)
    yield expect(
        "synchronous, behind a second of work", _states(recorded)[-1], must=("all_reduce", True)
    )
    torch.cuda.synchronize()
    time.sleep(_SELDOM_S)
    dist.barrier()
    states = dict(_states(recorded)[:2])
    yield expect("once the device is past it", states, must={"all_reduce": False})
    work: Any = dist.all_reduce(x, async_op=True)
    work.wait()
    with dist.distributed_c10d._coalescing_manager(device=device.here, async_ops=True) as gathered:
        dist.broadcast(x, 0)
        dist.broadcast(x, 0)
    for one in gathered.works:
        one.wait()
    torch.cuda.synchronize()
    yield from _to_self(device, recorded)
    yield from _sharded(device, recorded)
    if device.is_fake:
        yield left_out("DistributedDataParallel", "the made-up CUDA has no NCCL")
    else:
        _train(device)
    torch.cuda.synchronize()
    time.sleep(_SELDOM_S)
    dist.barrier()
    still = [op for op, is_open in _states(recorded) if is_open]
    yield expect("open in the end", still, must=[])
    yield expect("problems of the record", recorded.problems(), must=[])
    dist.destroy_process_group()


def _to_self(device: Device, recorded: Recorded) -> Iterator[Finding]:
    """Messages of a batch are open until the device is past all of them."""
    sent, received = torch.ones(1024, device=device.here), torch.zeros(1024, device=device.here)
    batch = [dist.P2POp(dist.isend, sent, 0), dist.P2POp(dist.irecv, received, 0)]
    device.sleep(_BEHIND_S)
    works: Any = dist.batch_isend_irecv(batch)
    behind = _states(recorded)[-2:]
    yield expect("a batch behind work", behind, must=[("send", True), ("recv", True)])
    for one in works:
        one.wait()
    torch.cuda.synchronize()
    time.sleep(_SELDOM_S)
    dist.barrier()
    ended = [row["is_open"] for row in recorded.rows("collectives") if row["op"] in _MESSAGES]
    yield expect("the batch once the device is past it is open", ended, must=[False, False])
    yield expect("what was received", float(received.sum()), must=1024.0)


def _sharded(device: Device, recorded: Recorded) -> Iterator[Finding]:
    """FSDP2: losses and norms are the script's, and modules have their names."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    mesh = init_device_mesh("cuda", (1,))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(device.here)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, told = torch.randn(8, 64, device=device.here), list[tuple[float, float]]()
    begun = len(recorded.rows("steps"))
    for _ in range(6):
        loss = model(x).square().mean()
        loss.backward()
        norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        told.append((loss.item(), norm.full_tensor().item()))
    torch.cuda.synchronize()
    dist.barrier()
    rows = recorded.rows("steps")[max(0, begun - 1) :][: len(told)]
    for place, name in enumerate(("loss", "grad_norm")):
        pairs = zip(rows, told, strict=True)
        off = [abs((row[name] or math.inf) - own[place]) for row, own in pairs]
        yield limit(f"FSDP2: {name}: the largest difference", max(off, default=math.inf), most=1e-5)
    names = {row["module"] for row in recorded.rows("torch_trace") if row["stage"] == "forward"}
    yield expect("FSDP2: modules", sorted(names), must=["0", "1", "2", "Sequential"])


def _train(device: Device) -> None:
    """Some steps of DistributedDataParallel."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).to(device.here), [0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(8, 64, device=device.here)).sum().backward()
        optimizer.step()


def hang(device: Device) -> Iterator[Finding]:
    """What the host does while its device hangs, and what it is in, is told from another thread."""
    recorded = Recorded()
    device.begin()
    _join(device)
    x = torch.ones(1024, device=device.here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    device.sleep(_HANGS_S)
    dist.all_reduce(x)
    is_open = _states(recorded)[-1]
    yield expect("the collective behind it is open", is_open, must=("all_reduce", True))
    if device.is_fake:
        device.tick(2 * _HANGS_S)
        yield left_out("what the host waits for", "the made-up CUDA lets nobody wait")
    else:
        told: list[str] = []
        asking = threading.Thread(target=_look, args=(told,))
        asking.start()
        torch.cuda.synchronize()
        asking.join()
        yield expect("what the host waits for", told, must=["device"])
    # The watch of the agent sees that the device is past it, though the training stands still.
    closed = wait_for(lambda: not _states(recorded)[-1][1])
    yield expect("closed though the training stands still", closed, must=True)
    device.sleep(_BEHIND_S)
    dist.all_reduce(x)
    dist.distributed_c10d._abort_process_group()
    yield expect("one whose group is aborted is", _ends(recorded)[-1], must="FAILED")
    yield expect("problems of the record", recorded.problems(), must=[])


def _look(told: list[str]) -> None:
    """The stack of the main thread, a moment later."""
    from probing.agent.sources.stacks.look import take_backtrace
    from probing.diagnosis.hang.seen.doings import doing_of

    time.sleep(1.0)
    doing = doing_of(take_backtrace())
    told.append("nothing" if doing is None else doing.kind)
