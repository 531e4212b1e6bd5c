"""Trains for ever in the ways that `ways` names: some keep memory, some only seem to.

They can be changed from outside. Steps are slowed down a little, to leave the machine to others.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

WIDTH, MOST = 64, 200
all_losses: list[Tensor] = []
kept_numbers: list[Tensor] = []
shelf: list[Tensor] = []
last_losses: deque[Tensor] = deque(maxlen=12)
validation: list[Tensor] = []
kept_bytes: list[bytes] = []
numbers: list[float] = []
opened: list[Any] = []
started: list[threading.Thread] = []
SAVING = ("sigmoid", "relu", "tanh", "exp", "softmax")
"""Functions whose node saves what they return."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + torch.relu(self.line(self.norm(x)))
        return out


class Trainer:
    """Keeps what it should not."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.blocks: Any = nn.ModuleList([Block(), Block()])
        self.model = nn.Sequential(*self.blocks, nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.average = copy.deepcopy(self.model).requires_grad_(requires_grad=False)
        self.history: dict[str, list[Tensor]] = {"out": []}
        self.errors: list[Exception] = []
        self.batches: list[Tensor] = []
        self.gates: dict[str, list[Tensor]] = {name: [] for name in SAVING}
        self.hidden = torch.zeros(WIDTH, requires_grad=True)
        self.cache: dict[int, bytes] = {}
        self.passing: Tensor | None = None
        self.steps = 0

    def batch(self, rows: int = 8) -> tuple[Tensor, Tensor]:
        return torch.randn(rows, WIDTH), torch.randn(rows, 1)

    def step(self, *, micro_batches: int = 1, zeroed: bool = True) -> tuple[Tensor, Tensor]:
        for _ in range(micro_batches):
            x, y = self.batch()
            out = self.model(x)
            loss = mse_loss(out, y)
            loss.backward()
        self.optimizer.step()
        if zeroed:
            self.optimizer.zero_grad()
        self.steps += 1
        return out, loss


def plain(trainer: Trainer) -> None:
    trainer.step()


def accumulation(trainer: Trainer) -> None:
    trainer.step(micro_batches=3)


def ema(trainer: Trainer) -> None:
    trainer.step()
    with torch.no_grad():
        # Another way may have given the model more modules since.
        for mean, now in zip(
            trainer.average.parameters(), trainer.model.parameters(), strict=False
        ):
            mean.lerp_(now, 0.01)


def bounded(trainer: Trainer) -> None:
    last_losses.append(trainer.step()[1])


def evaluation(trainer: Trainer) -> None:
    trainer.step()
    if trainer.steps % 3 == 0:
        x, y = trainer.batch(32)
        with torch.no_grad():
            validation[:] = [mse_loss(trainer.model(x), y)]


def kept_loss(trainer: Trainer) -> None:
    kept_numbers.append(trainer.step()[1].detach().sqrt())


def uneven(trainer: Trainer) -> None:
    trainer.step()
    # Of another size at each step's end, and in no eight steps of a larger one each time.
    trainer.passing = torch.zeros(trainer.steps * 40503 % 65536)
    shelf.append(torch.zeros(256))


def kept_graph(trainer: Trainer) -> None:
    trainer.step()
    x, y = trainer.batch()
    all_losses.append(mse_loss(trainer.model(x), y))


def outputs(trainer: Trainer) -> None:
    trainer.history["out"].append(trainer.step()[0])


def own_results(trainer: Trainer) -> None:
    trainer.step()
    for length, name in enumerate(SAVING, 2):
        given = torch.rand(length, 3, requires_grad=True)
        options = {"dim": 0} if name == "softmax" else {}
        trainer.gates[name].append(getattr(torch, name)(given, **options))


def carried(trainer: Trainer) -> None:
    trainer.step()
    trainer.hidden = torch.tanh(trainer.hidden * 1.01)


def texts(trainer: Trainer) -> None:
    kept_bytes.append(bytes(2000 + trainer.steps))
    trainer.step()


def cached(trainer: Trainer) -> None:
    trainer.cache[trainer.steps] = b"%d" % trainer.steps * 1000
    trainer.step()


def floats(trainer: Trainer) -> None:
    numbers.append(float(trainer.step()[1]))


def files(trainer: Trainer) -> None:
    trainer.step()
    if len(opened) < MOST:
        opened.append(open("/proc/self/stat", encoding="ascii"))  # noqa: SIM115 - never closed


def threads(trainer: Trainer) -> None:
    trainer.step()
    if len(started) < MOST:
        started.append(threading.Thread(target=wait_for_ever, daemon=True))
        started[-1].start()


def wait_for_ever() -> None:
    threading.Event().wait()


def hooks(trainer: Trainer) -> None:
    trainer.step()

    def look(module: nn.Module, given: Any, made: Any) -> None:
        """A hook that is never removed."""

    trainer.blocks[0].register_forward_hook(look)


def modules(trainer: Trainer) -> None:
    trainer.step()
    trainer.model.append(nn.Linear(1, 1))


def tracebacks(trainer: Trainer) -> None:
    out, _ = trainer.step()
    try:
        check(out)
    except ValueError as error:
        trainer.errors.append(error)


def check(out: Tensor) -> None:
    scores = out.detach() * 2
    raise ValueError(tuple(scores.shape))


def batches(trainer: Trainer) -> None:
    x, _ = trainer.batch()
    trainer.model(x)
    trainer.batches.append(x)
    trainer.step()


def closure() -> Callable[[Trainer], None]:
    seen: list[Tensor] = []

    def way(trainer: Trainer) -> None:
        seen.append(trainer.step()[0].detach())

    return way


def cycles(trainer: Trainer) -> None:
    """Objects that refer to themselves, while the collector is switched off."""
    node = Node(trainer.step()[0].detach())
    node.me = node


class Node:
    """Refers to itself."""

    def __init__(self, made: Tensor) -> None:
        self.made = made
        self.me: Node | None = None


def unzeroed(trainer: Trainer) -> None:
    trainer.step(zeroed=False)


WAYS: dict[str, Callable[[Trainer], None]] = {
    way.__name__: way
    for way in (
        plain, accumulation, ema, bounded, evaluation, kept_loss, kept_graph, outputs, own_results,
        carried, texts, cached, floats, files, threads, hooks, modules, tracebacks, batches, cycles,
        unzeroed, uneven,
    )
} | {"closure": closure()}  # fmt: skip


def saved_by_one_graph(trainer: Trainer) -> str:
    """What the graph of one loss keeps, and the loss itself, by torch's own hooks, as JSON."""
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    x, y = trainer.batch()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = mse_loss(trainer.model(x), y)
    note(loss)
    for parameter in trainer.model.parameters():
        saved.pop(parameter.untyped_storage().data_ptr(), None)
    return json.dumps({"bytes": sum(saved.values()), "tensors": len(saved)})


def one_kept(losses: list[Tensor], weight: Tensor) -> str:
    """The places of a kept loss, of what only its graph keeps, and of a weight."""
    loss: Any = losses[0]
    storages = [one.untyped_storage() for one in (loss, loss.grad_fn._saved_self, weight)]
    return json.dumps([{"address": one.data_ptr(), "bytes": one.nbytes()} for one in storages])


ways = sys.argv[1:]
trainer = Trainer()

if __name__ == "__main__":
    while len(last_losses) < 12:
        bounded(trainer)
    print("ready", flush=True)
    while True:
        (gc.disable if ways == ["cycles"] else gc.enable)()
        for name in list(ways):
            WAYS[name](trainer)
        time.sleep(0.04)
