"""Trains on batches whose making calls modules itself, in the way that its argument names.

One line of JSON per step says how long the script slept inside such modules, how long it waited for
batches, and how long its model was called; the last one has what the whole run did.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

STEPS, BATCH, NAP_S = 6, 4, 0.005
SPENT: Counter[str] = Counter()
CALLS: Counter[str] = Counter()


class Spending:
    """Adds what a piece of the script takes to a sum."""

    def __init__(self, on: str) -> None:
        self.on = on

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        SPENT[self.on] += time.perf_counter() - self.began  # type: ignore[assignment]


class Nap(nn.Module):
    """Takes its time, and fails once with each exception that it is given."""

    def __init__(self, *errors: BaseException) -> None:
        super().__init__()
        self.errors = list(errors)

    def forward(self, x: Tensor) -> Tensor:
        CALLS["nap"] += 1
        with Spending("slept"):
            time.sleep(NAP_S)
        if self.errors and not CALLS["nap"] % (BATCH + 1):
            raise self.errors.pop()
        return x


class Samples(Dataset[Tensor]):
    """Samples that a module has been put to."""

    def __init__(self, module: nn.Module, count: int = STEPS * BATCH) -> None:
        super().__init__()
        self.module = module
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        with torch.no_grad():
            return self.module(torch.full((4,), 1.0 + index))


class Nested(Samples):
    """Each sample is a batch that another loader makes, and goes through the module once more."""

    def __getitem__(self, index: int) -> Tensor:
        (inner,) = DataLoader(Samples(self.module, 2), batch_size=2)
        return self.module(inner.mean(0))


class Stream(IterableDataset[Tensor]):
    """Makes the first of its samples as it is begun, and each of the others as it is asked for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def __iter__(self) -> Iterator[Tensor]:
        first = self.module(torch.ones(4))
        return self.samples(first)

    def samples(self, first: Tensor) -> Iterator[Tensor]:
        yield first
        for index in range(BATCH * STEPS // 2 - 1):
            yield self.module(torch.full((4,), 1.0 + index))


def transform(*errors: BaseException) -> nn.Module:
    return nn.Sequential(Nap(*errors), nn.Identity())


def encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), Nap()).requires_grad_(False)


def fed(batches: Any, epochs: int = 1) -> Iterator[Tensor]:
    """What a loader gives; what it raises is counted, and the next batch asked for."""
    for _ in range(epochs):
        with Spending("waited"):
            iterator = iter(batches)
        while True:
            with Spending("waited"):
                try:
                    batch = next(iterator, None)
                except (MemoryError, KeyboardInterrupt) as error:
                    CALLS[type(error).__name__] += 1
                    continue
            if batch is None:
                break
            yield batch


class Training:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def train(self, batches: Iterator[Tensor]) -> None:
        for batch in batches:
            with Spending("called"):
                y = self.model(batch)
            loss = y.square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            CALLS["steps"] += 1
            print(json.dumps({"loss": loss.item(), **SPENT}), flush=True)
            SPENT.clear()

    def validate(self, batches: Iterator[Tensor]) -> None:
        with torch.no_grad():
            for batch in batches:
                self.model(batch)
                CALLS["validated"] += 1
        SPENT["slept"] = 0  # that is no part of the next step


def loader(dataset: Any) -> DataLoader[Tensor]:
    return DataLoader(dataset, batch_size=BATCH)


def transformed(training: Training) -> None:
    training.train(fed(loader(Samples(transform()))))


def encoded(training: Training) -> None:
    training.train(fed(loader(Samples(encoder()))))


def validated(training: Training) -> None:
    """A validation whose batches are made alike comes behind each epoch."""
    batches = loader(Samples(encoder()))
    for _ in range(2):
        training.train(fed(batches))
        training.validate(fed(batches))


def failing(training: Training) -> None:
    """The script goes on behind what its dataset raises."""
    module = transform(MemoryError("no room"), KeyboardInterrupt())
    training.train(fed(loader(Samples(module, (STEPS + 2) * BATCH))))


def nested(training: Training) -> None:
    training.train(fed(loader(Nested(transform()))))


def streamed(training: Training) -> None:
    training.train(fed(loader(Stream(transform())), epochs=2))


def generated(training: Training) -> None:
    """Batches that no DataLoader makes: nothing tells their making from the rest of the loop."""
    module = transform()
    training.train(module(torch.full((BATCH, 4), 1.0 + index)) for index in range(STEPS))


def in_another_thread(training: Training) -> None:
    """A thread makes the batches, from before the first step on."""
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.extend(loader(Samples(encoder()))))
    thread.start()
    thread.join()
    SPENT.clear()
    training.train(iter(found))


if __name__ == "__main__":
    globals()[sys.argv[1]](Training())
    print(json.dumps(CALLS))
