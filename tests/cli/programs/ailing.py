"""Trains a small model with the fault that its argument names, until somebody ends it.

`well` has none. `piling` opens files, starts threads and children, and writes files to shared
memory (named after the process), one after the other, and lets go of none. As ranks of a job all
train on the same data; with `outside` on their own, and the last layer is not in the
DistributedDataParallel around the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch
from torch import distributed as dist, nn
from torch.nn.parallel import DistributedDataParallel

PAUSE_S = 0.004
EVERY = 20


class Deep(nn.Module):
    """Many layers with sigmoids, through which hardly any gradient comes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(16)])
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        return self.head(x)


def model_of(way: str) -> nn.Sequential | Deep:
    if way == "vanishing":
        return Deep()
    model = nn.Sequential(
        nn.Linear(16, 32),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 1),
    )
    if way == "dead":
        with torch.no_grad():
            model.get_parameter("0.bias").fill_(-1e3)
    return model


class Heap:
    """What is started and never ended."""

    def __init__(self) -> None:
        self.kept: list[object] = []
        self._never = threading.Event()

    def grow(self, step: int) -> None:
        self.kept.append(os.open("trace.log", os.O_CREAT | os.O_APPEND))
        threading.Thread(target=self._never.wait, name=f"upload-{step}", daemon=True).start()
        with open(f"/dev/shm/ailing-{os.getpid()}-{step}.bin", "wb") as file:
            file.write(bytes(1 << 18))
        if step % (5 * EVERY) == 0:  # ends with this process: its input does
            self.kept.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))


def main() -> None:
    way = sys.argv[1]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = model_of(way)
    # Without momentum the gradients that add up are not smoothed away.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4 if way == "not-zeroed" else 1e-2)
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(16, generator=generator)
    predict: Callable[[torch.Tensor], torch.Tensor] = model
    heap = Heap()
    is_rank = "RANK" in os.environ
    if is_rank:
        dist.init_process_group("gloo")
    if way == "outside" and isinstance(model, nn.Sequential):
        generator.manual_seed(dist.get_rank())
        body, head = DistributedDataParallel(model[:-1]), model[-1]
        predict = lambda x: head(body(x))  # noqa: E731
    print("ready", flush=True)
    step = 0
    while True:
        if way == "reseeded":
            torch.manual_seed(7)
        inputs = torch.randn(32, 16, generator=generator)
        targets = inputs @ weights
        loss = ((predict(inputs).squeeze(-1) - targets) ** 2).mean()
        if way != "not-zeroed":
            optimizer.zero_grad()
        loss.backward()
        if is_rank and way != "outside":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        if way == "piling" and step % EVERY == 0:
            heap.grow(step)
        step += 1
        print("step", step, flush=True)
        time.sleep(PAUSE_S)


main()
