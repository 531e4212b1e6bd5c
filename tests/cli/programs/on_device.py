"""A rank of a job on made-up devices, each with a driver that tells of it; the last one is slow.

Steps go on until there is a file ``halt``; then the rank does nothing more. The device of the last
rank needs more for its own work, and waits for no other in collectives; its clock is held down.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tests.harness import fake_nccl
from tests.harness.fake_cuda import FakeCuda, fake_nvml
from tests.harness.fake_torch import install

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
IS_SLOW = RANK == RANKS - 1
CUDA = FakeCuda(devices=RANKS, home=RANK)
LAYER_S, TRANSFER_S, BEHIND_S = 4e-3, 2e-3, 3e-3
LINKS = SimpleNamespace(kib=0)


def links(fields: list[int]) -> list[Any]:
    """Counters of NVLink; each time they are asked some more has gone through."""
    LINKS.kib += 1 << 20
    return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=LINKS.kib)) for _ in fields]


def driver() -> Any:
    """What stands in for NVML."""
    processes = [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=3 << 30),
        SimpleNamespace(pid=1, usedGpuMemory=1 << 30),
    ]
    told = {
        "MemoryInfo": SimpleNamespace(used=4 << 30, total=141 << 30),
        "UtilizationRates": SimpleNamespace(gpu=97, memory=40),
        "ComputeRunningProcesses": processes,
        "PowerUsage": 650_000,
        "EnforcedPowerLimit": 700_000,
        "ClockInfo": lambda clock: {1: 1_200 if IS_SLOW else 1_980, 2: 2_619}[clock],
        "CurrentClocksEventReasons": 0x40 if IS_SLOW else 0,
        "Temperature": lambda sensor: 88 if IS_SLOW else 61,
        "TotalEccErrors": lambda kind, counter: 2 if IS_SLOW else 0,
        "PcieThroughput": lambda counter: 1_048_576,
        "FieldValues": links,
    }
    return fake_nvml({f"GPU-fake-{RANK}": told}, xids=[79] if IS_SLOW else [])


class Layer(nn.Linear):
    """One that keeps the device busy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CUDA.work(LAYER_S + (BEHIND_S if IS_SLOW else 0.0))
        return super().forward(x)


def captured() -> Any:
    """A graph of some work."""
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.Stream(torch.device("cuda", RANK)):
        graph.capture_begin()
        CUDA.work(LAYER_S)
        graph.capture_end()
    return graph


def is_halted(number: int) -> bool:
    """Whether to end before this step: the same one on all ranks, which are at most one apart."""
    last = Path("last_step")
    if RANK == 0 and Path("halt").exists() and not last.exists():
        Path("last_step.new").write_text(str(number + 3))
        Path("last_step.new").rename(last)
    return last.exists() and number >= int(last.read_text())


def train() -> None:
    """Steps that the device is behind with by one."""
    model = nn.Sequential(Layer(8, 8), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    graph, number = captured(), 0
    while not is_halted(number):
        model(torch.randn(4, 8)).square().mean().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
        graph.replay()
        optimizer.step()
        optimizer.zero_grad()
        CUDA.advance(0.05)
        number += 1
        if number == 25:
            print("ready", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.modules["pynvml"] = driver()
    install(CUDA)
    fake_nccl.install(CUDA, allreduce=TRANSFER_S + (0.0 if IS_SLOW else BEHIND_S / 2))
    dist.init_process_group("gloo")
    CUDA.start()
    train()
    print("halted", flush=True)
    time.sleep(600)
