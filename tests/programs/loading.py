"""Feeds a small training from a DataLoader, in the way that the first argument names.

Prints `step N LOSS` with the exact loss of each step, `ready` before what may hang, and `done` at
the end, after which it waits to be ended. What an epoch raises is printed and does not end it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import UserDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

SIZE, LENGTH, IGNORED = 10, 6, -100


class Sums(Dataset[dict[str, Tensor]]):
    """Samples such as language models are trained on; the first half of each is a prompt."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        codes = torch.arange(index, index + LENGTH)
        labels = codes.clone()
        labels[: LENGTH // 2] = IGNORED
        if index == 1:
            labels[:] = IGNORED
        return {"input_ids": codes, "labels": labels}


class Stuck(Sums):
    """Its second half is never read to the end, as long as the reading process has its parent."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        parent = vars(self).setdefault("parent", os.getppid())
        while index >= SIZE // 2 and os.getppid() == parent:
            time.sleep(0.5)
        return super().__getitem__(index)


class Deadly(Sums):
    """Ends its worker at its last sample, once all batches before have arrived whole."""

    def __init__(self) -> None:
        super().__init__()
        self.are_taken = multiprocessing.Event()

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if index == SIZE - 1 and get_worker_info() is not None:
            self.are_taken.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Raising(Sums):
    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if index == SIZE - 1:
            raise KeyError("no such sample")
        return super().__getitem__(index)


class Stream(IterableDataset[dict[str, Tensor]]):
    """Worker 0 has fewer samples than worker 1."""

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        info = get_worker_info()
        first = info.id if info is not None else 0
        samples = Sums()
        yield from (samples[index] for index in range(2 + 4 * first))


class Encoding(UserDict[str, Tensor]):
    """What a tokenizer of transformers returns."""


class Tokenizer:
    """Has the two methods by which those of transformers are known here."""

    def decode(self, ids: list[int]) -> str:
        return "".join(self.convert_ids_to_tokens(ids))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"<{number}>" for number in ids]


def encode(samples: list[dict[str, Tensor]]) -> Encoding:
    return Encoding({key: torch.stack([s[key] for s in samples]) for key in samples[0]})


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * SIZE, 4)
        self.head = nn.Linear(4, 2 * SIZE)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        scores: Tensor = self.head(self.table(input_ids))
        if labels is None:
            return scores
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


torch.manual_seed(0)
MODEL = Model()
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
COUNTER = itertools.count()


def loss_of(input_ids: Tensor, labels: Tensor) -> Tensor:
    """The loss of a model that is given no labels."""
    return nn.functional.cross_entropy(MODEL(input_ids).flatten(0, 1), labels.flatten())


def train(batches: Any, call: Callable[..., Any] = MODEL) -> None:
    """An epoch; what it raises is printed."""
    try:
        for batch in batches:
            loss = call(**batch)
            loss.backward()
            OPTIMIZER.step()
            OPTIMIZER.zero_grad()
            print("step", next(COUNTER), loss.item().hex(), flush=True)
    except (RuntimeError, KeyError) as error:
        print("raised", type(error).__name__, str(error).splitlines()[0][:40], flush=True)


def loader(dataset: Any, workers: int = 0, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=4, num_workers=workers, **options)


def single() -> None:
    globals()["kept"] = loader(Sums())
    train(globals()["kept"])


def two_workers() -> None:
    train(loader(Sums(), 2))


def persistent() -> None:
    batches = loader(Sums(), 2, persistent_workers=True, shuffle=True)
    train(batches)
    train(batches)


def stream() -> None:
    train(loader(Stream(), 2))
    train(loader(Stream()))


def encoded() -> None:
    train(loader(Sums(), collate_fn=encode))


def dies() -> None:
    deadly = Deadly()

    def batches() -> Iterator[Any]:
        for number, batch in enumerate(loader(deadly, 2), 1):
            yield batch
            if (
                number * 4 >= SIZE - 4
            ):  # and stepped on: a step could hear of the death in its midst
                deadly.are_taken.set()

    train(batches())


def raises() -> None:
    train(loader(Raising(), 2))
    train(loader(Raising()))


def hangs() -> None:
    print("ready", flush=True)
    train(loader(Stuck(), 2))


def hangs_of_a_server() -> None:
    """Its workers are no children of the training, but of a process that forks them."""
    print("ready", flush=True)
    train(loader(Stuck(), 2, multiprocessing_context="forkserver"))


def hangs_without_workers() -> None:
    print("ready", flush=True)
    train(loader(Stuck()))


def in_another_thread() -> None:
    """A thread fetches batches, the main thread trains on them."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(loader(Sums())), name="prefetcher")
    thread.start()
    thread.join()
    train(found)


def one_inside_another() -> None:
    """A dataset that reads from a loader itself."""

    class Outer(Sums):
        def __getitem__(self, index: int) -> dict[str, Tensor]:
            next(iter(loader(Sums())))
            return super().__getitem__(index)

    train(loader(Outer()))


def for_ever(call: Callable[..., Any] = MODEL, *, step_s: float = 0.01) -> None:
    """Trains on and on, for who wants to look at a batch."""
    batches = loader(Sums(), 2, persistent_workers=True)
    print("ready", flush=True)
    while not Path("stop").exists():
        train(batches, call)
        time.sleep(step_s)


def labels_apart() -> None:
    """Labels are in the batch alone, not in the call of the model."""
    for_ever(loss_of)


def with_tokenizer() -> None:
    globals()["tokenizer"] = Tokenizer()
    for_ever()


def without_loader() -> None:
    """Batches that no DataLoader made; the labels are those of the next token."""
    codes = torch.arange(LENGTH + 1).expand(3, -1)
    print("ready", flush=True)
    while not Path("stop").exists():
        train([{"input_ids": codes[:, :-1], "labels": codes[:, 1:]}])
        time.sleep(0.01)


def no_labels() -> None:
    x = torch.ones(2, LENGTH, dtype=torch.int64)
    print("ready", flush=True)
    while not Path("stop").exists():
        MODEL(x).sum().backward()
        OPTIMIZER.step()
        OPTIMIZER.zero_grad()
        time.sleep(0.01)


if __name__ == "__main__":
    ways: list[Callable[[], None]] = [globals()[name] for name in sys.argv[1:]]
    for way in ways:
        way()
    print("done", flush=True)
    while not Path("stop").exists():
        time.sleep(0.05)
