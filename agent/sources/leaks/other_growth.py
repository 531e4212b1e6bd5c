"""What grows in the watched steps beside storages: collections, descriptors, threads, workers.

Rules of this file: runs in the training thread, at the ends of steps; what takes long is done by
the surveyor's thread, which is waited for by nobody. Of workers it reads what the kernel tells, and
never asks a `Process` object, which would take the news of its death from the training.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..storage.living import living
from ..storage.surveyor import Surveyor
from .comers import (
    Comers,
    Stayed,
    descriptors_now,
    stayed_descriptors,
    stayed_threads,
    threads_now,
)
from .containers import LOOKS, Growing, GrowthWatch
from .references.holders import Holder

_ANONYMOUS = b"RssAnon:"
_LEAST_BYTES_PER_STEP = 1024
"""A collection that grows by less than this is a history of numbers: a GB takes a million steps."""


class ProcessCounts(NamedTuple):
    """What the kernel and Python count as a step has ended.

    Attributes:
        worker_bytes: What the worker processes have of their own, of those that were there at the
            first step; None where there are none, or one of them has gone.
    """

    descriptors: int
    threads: int
    worker_bytes: int | None


class OtherGrowth:
    """Watches some steps.

    Attributes:
        stayed: Descriptors and threads that came and stayed, once that is judged.
        workers: Where the workers' samples are made, likewise.
    """

    def __init__(self, surveyor: Surveyor, steps: int, step: Callable[[], int]) -> None:
        self.stayed: tuple[Stayed, ...] = ()
        self.workers = Holder("unknown")
        self._steps = steps
        self._descriptors, self._threads = Comers(), Comers()
        self._collections = GrowthWatch(surveyor, step)
        self._pids: frozenset[int] | None = None
        self._due = 0

    def count(self, done: int, step: int) -> ProcessCounts:
        """A step has ended, after so many that were watched."""
        descriptors, threads, workers = descriptors_now(), threads_now(), workers_now()
        self._descriptors.note(descriptors, step)
        self._threads.note(threads, step)
        self._pids = frozenset(workers) if self._pids is None else self._pids
        if done >= self._due and done < self._steps:
            self._due = done + max(1, self._steps // (LOOKS - 1))
            self._collections.look()
        has_all = bool(self._pids) and self._pids <= workers.keys()
        own = sum(workers[pid] for pid in self._pids) if has_all else None
        return ProcessCounts(len(descriptors), len(threads), own)

    def judge(self) -> None:
        """The steps are over."""
        self._collections.judge()
        self.stayed = stayed_descriptors(self._descriptors), stayed_threads(self._threads)
        self.workers = holder_in_workers(set(self._pids or ()))

    def is_done(self) -> bool:
        """Whether all is known."""
        return self._collections.is_done()

    def growing(self) -> list[Growing]:
        """The collections that have grown by enough to matter."""
        return [
            each
            for each in self._collections.found()
            if each.grown * each.item_bytes >= _LEAST_BYTES_PER_STEP * each.steps
        ]

    def close(self) -> None:
        """Hold nothing any more."""
        self._collections.close()


def workers_now() -> dict[int, int]:
    """The anonymous memory of each, in bytes, by its pid."""
    module: Any = sys.modules.get("multiprocessing.process")
    found: dict[int, int] = {}
    for child in list(getattr(module, "_children", ())):
        pid: int | None = getattr(getattr(child, "_popen", None), "pid", None)
        size = None if pid is None else _anonymous_bytes(pid)
        if pid is not None and size is not None:
            found[pid] = size
    return found


def holder_in_workers(pids: set[int]) -> Holder:
    """The data set that some workers read, by where its class makes samples."""
    module: Any = sys.modules.get("torch.utils.data.dataloader")
    kind = getattr(module, "_MultiProcessingDataLoaderIter", None)
    for iterator in living((kind,))[0] if kind is not None else ():
        own = {getattr(w._popen, "pid", None) for w in list(getattr(iterator, "_workers", ()))}
        if own & pids:
            return _makes_samples(type(iterator._dataset))
    return Holder("unknown")


def _makes_samples(dataset: type) -> Holder:
    for name in ("__getitem__", "__getitems__", "__iter__"):
        code = getattr(getattr(dataset, name, None), "__code__", None)
        if code is not None:
            return Holder(
                "unknown",
                path=f"{dataset.__qualname__}.{name}",
                place=dataset.__module__,
                file=code.co_filename,
                line_of=code.co_firstlineno,
            )
    return Holder("unknown", path=dataset.__qualname__, place=dataset.__module__)


def _anonymous_bytes(pid: int) -> int | None:
    """What the kernel says; None of a process that is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            line = next((line for line in status if line.startswith(_ANONYMOUS)), None)
    except OSError:
        return None
    return None if line is None else int(line.split()[1]) << 10
