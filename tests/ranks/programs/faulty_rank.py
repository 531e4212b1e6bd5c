"""A data-parallel training on gloo with one fault in it: `faulty_rank.py FAULT [RANK]`.

Each rank prints `ready` after its first step and `step N` at every one; the rank with the fault
prints `injected` just before. It goes on until it is killed. With FR_DUMP it writes torch's own
flight recorder into that folder once the folder holds a file `dump`.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

LIFETIME_S = 600
FOREVER_S = 10**6
FAULT_STEP = 5
EPOCH = 100_000
FAULT = sys.argv[1]
CULPRIT = int(sys.argv[2]) if len(sys.argv) > 2 else 1


class Samples(Dataset[torch.Tensor]):
    """Random vectors; those of a stalled loader come no more after some steps."""

    def __init__(self, length: int, *, stalls: bool) -> None:
        self.length, self.stalls = length, stalls

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.stalls and index >= FAULT_STEP:
            read_from_storage()
        time.sleep(0.02)
        return torch.randn(16)


def read_from_storage() -> None:
    print("injected", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.1)
    raise SystemExit


class Slow(torch.autograd.Function):
    """Takes long in the backward pass."""

    @staticmethod
    def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        return gradient


def average_gradients(model: torch.nn.Module, *, is_faulty: bool) -> None:
    """One all_reduce for all gradients, or what the fault makes of it."""
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    if is_faulty and FAULT == "wrong_op":
        dist.broadcast(flat, src=0)
    elif is_faulty and FAULT == "wrong_shape":
        dist.all_reduce(torch.cat([flat, flat]))
    elif is_faulty and FAULT == "wrong_dtype":
        dist.all_reduce(flat.double())
    else:
        dist.all_reduce(flat)


def log_metrics() -> None:
    """A barrier that only one rank comes to."""
    dist.barrier()


def save_checkpoint(model: torch.nn.Module, loss: torch.Tensor) -> None:
    """Only one rank saves, and then wants to know the mean loss of all."""
    torch.save(model.state_dict(), f"checkpoint-{os.getpid()}.pt")
    total = loss.detach().clone()
    dist.all_reduce(total)


def look_up_the_answer() -> None:
    """Has nothing to do with the other ranks, and does not return."""
    time.sleep(FOREVER_S)


def fail_and_linger() -> None:
    """An exception that the process does not end of: a thread of it goes on."""
    threading.Thread(target=time.sleep, args=(FOREVER_S,), name="uploader").start()
    raise ValueError("a label is out of range: 1007")


def ring_of_groups(rank: int, world: int) -> None:
    """Each rank begins with the group that it shares with the next one."""
    groups = [dist.new_group([r, (r + 1) % world]) for r in range(world)]
    print("injected", flush=True)
    dist.all_reduce(torch.ones(4), group=groups[rank])
    dist.all_reduce(torch.ones(4), group=groups[rank - 1])


def break_something(model: torch.nn.Module, loss: torch.Tensor, rank: int) -> None:
    """The faults that happen between two steps."""
    if FAULT == "subgroup_deadlock":
        ring_of_groups(rank, dist.get_world_size())
    if rank != CULPRIT:
        return
    if FAULT not in {"healthy", "loader_stall", "reducer", "subgroup_deadlock"}:
        print("injected", flush=True)
    if FAULT == "missing_rank":
        look_up_the_answer()
    elif FAULT == "extra_barrier":
        log_metrics()
    elif FAULT == "rank0_checkpoint":
        save_checkpoint(model, loss)
    elif FAULT == "exception":
        fail_and_linger()


def dump_flight_recorder(folder: Path, rank: int) -> None:
    """What torch itself has recorded, in the file that its analyzer reads."""
    while not (folder / "dump").exists():
        time.sleep(0.2)
    data = torch._C._distributed_c10d._dump_fr_trace()  # type: ignore[attr-defined]
    (folder / f"rank_{rank}.part").write_bytes(data)
    (folder / f"rank_{rank}.part").rename(folder / f"rank_{rank}")


def batches(rank: int) -> Iterator[torch.Tensor]:
    is_culprit = rank == CULPRIT
    length = FAULT_STEP if FAULT == "uneven_batches" and is_culprit else EPOCH
    stalls = FAULT == "loader_stall" and is_culprit
    data = Samples(length, stalls=stalls)
    yield from DataLoader(data, batch_size=1, num_workers=1 if stalls else 0)


def made_model() -> torch.nn.Module:
    """Whose gradients the script averages, or the reducer of DistributedDataParallel in C++."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 1))
    return torch.nn.parallel.DistributedDataParallel(model) if FAULT == "reducer" else model


def train(rank: int) -> None:
    model = made_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, batch in enumerate(batches(rank)):
        is_faulty = rank == CULPRIT and step >= FAULT_STEP
        hidden = model(batch)
        if is_faulty and FAULT == "slow_backward":
            hidden = Slow.apply(hidden)
        loss = hidden.square().mean()
        if is_faulty and FAULT == "nan":
            loss = loss * math.nan
        optimizer.zero_grad()
        if is_faulty and FAULT == "reducer":
            print("injected", flush=True)
            look_up_the_answer()
        loss.backward()
        if step == FAULT_STEP:
            break_something(model, loss, rank)
        if FAULT != "reducer":
            average_gradients(model, is_faulty=is_faulty)
        optimizer.step()
        print("ready" if step == 0 else f"step {step}", flush=True)
    print("injected", flush=True)
    dist.barrier()


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if "FR_DUMP" in os.environ:
        where = (Path(os.environ["FR_DUMP"]), dist.get_rank())
        threading.Thread(target=dump_flight_recorder, args=where, daemon=True).start()
    train(dist.get_rank())
