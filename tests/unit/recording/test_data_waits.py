"""What the phases of a step are told of waits for data, seen by a fake that listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.agent.recording.safe_points import SafePoints
from probing.ring.writer import Names, RingWriter
from probing.tables import BATCHES, TORCH_TRACE

pytestmark = pytest.mark.torch


class Phases:
    """Listens as the phases of a step do."""

    def __init__(self) -> None:
        self.told: list[tuple[int | None, int | None]] = []
        self.took: list[int] = []
        self.fetches: Callable[[], int] = int

    def data_waited(self, wait: Any) -> None:
        """A wait has ended."""
        self.told.append((wait.samples, wait.tokens))
        self.took.append(wait.took_ns)


@pytest.fixture
def phases(tmp_path: Path) -> Iterator[Phases]:
    """Listens to the DataLoaders of this very process."""
    import torch.utils.data.dataloader

    from probing.agent.sources.data.dataloaders import DataLoaders
    from probing.agent.sources.shared.recording import Recording

    rings = [RingWriter(tmp_path / t.name, t, 64) for t in (TORCH_TRACE, BATCHES)]
    names = Names(tmp_path / "names")
    listener: Any = Phases()
    recording = Recording(trace=rings[0], rows=listener, names=names, safe_points=SafePoints())
    listener.fetches = lambda: recording.threads.state.fetches
    source = DataLoaders(recording, rings[1])
    original = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    source.start()
    yield listener
    source.close()
    names.close()
    for ring in rings:
        ring.close()
    assert source.guard.problem is None
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is original


def batches(samples: list[Any]) -> Any:
    """A loader of batches of two."""
    from torch.utils.data import DataLoader

    return DataLoader(samples, batch_size=2)  # type: ignore[arg-type]


def test_every_wait_of_the_training_thread_is_told(phases: Phases) -> None:
    """The iterator, each batch with its samples and tokens, the end, and how long each took."""
    import torch

    list(batches([torch.arange(5)] * 3))
    assert phases.told == [(None, None), (2, 10), (1, 5), (None, None)]
    assert all(took > 0 for took in phases.took)


def test_a_wait_inside_a_wait_is_told_once(phases: Phases) -> None:
    """A dataset that reads from a loader of its own makes no time count twice."""

    class Outer(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            return next(iter(batches([1, 2])))

    list(batches(Outer([0, 0])))
    assert phases.told == [(None, None), (2, 4), (None, None)]


def test_waits_of_other_threads_are_not_told(phases: Phases) -> None:
    """A prefetching thread's waits are not the training's."""
    thread = threading.Thread(target=lambda: list(batches([1, 2, 3])))
    thread.start()
    thread.join()
    assert phases.told == []


def test_a_failure_is_told_without_samples(phases: Phases) -> None:
    """The time until an exception was waited, too; the exception is the dataset's own."""

    class Broken(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            raise ZeroDivisionError("its own")

    with pytest.raises(ZeroDivisionError, match="its own"):
        list(batches(Broken([0])))
    assert phases.told == [(None, None)] * 2  # of the iterator, and of the batch


def test_a_thread_fetches_as_long_as_it_waits(phases: Phases) -> None:
    """Its own state says how many waits it is inside of, however they end."""
    found: list[int] = []

    class Inner(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            found.append(phases.fetches())
            if index:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    class Outer(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            found.append(phases.fetches())
            return next(iter(batches(Inner([0, 1]))))

    with pytest.raises(KeyboardInterrupt):
        list(batches(Outer([0])))
    assert found == [1, 2, 2]
    assert phases.fetches() == 0


def test_only_the_thread_that_waits_fetches(phases: Phases) -> None:
    """Another one that works meanwhile does not."""
    found: list[int] = []

    class Slow(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            thread = threading.Thread(target=lambda: found.append(phases.fetches()))
            thread.start()
            thread.join()
            return super().__getitem__(index)

    list(batches(Slow([0])))
    assert found == [0]
