"""Which data loader keeps the training waiting, and where the worker that it waits for is.

Rules of this file: runs at the operator's side. The table python.dataloaders says who waits for
which worker; the stack of that worker, a process of its own, is had as any other process's is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import groupby

from ..client.base import Process
from ..client.connecting import connect
from ..errors import ProbingError
from ..messages.common import Backtrace, LiveRows, ThreadStack
from ..messages.frozen import InNotebooks, dataclass
from ..stacks import waits
from ..tables import DATALOADERS
from ..units import age

STALL_S = 1.0
"""How long a batch must have been waited for before the wait counts as a stall."""
_WAITED = """
    SELECT count(*) AS steps, sum(data_wait_s) / nullif(sum(duration), 0) AS wait_share
    FROM (FROM python.steps WHERE duration IS NOT NULL ORDER BY seq DESC LIMIT 100)
"""
_ENDED = (None, "Z", "X")
_ENTRIES = ("_worker_loop", "__next__")
_ENTRY_FILES = ("torch/utils/data/_utils/worker.py", "torch/utils/data/dataloader.py")
"""Where the making of a batch begins, in a worker and without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker process of a loader, as python.dataloaders has it."""

    worker: int
    awaited: bool | None
    tasks: int
    pid: int | None
    state: str | None
    resident_bytes: int | None
    cpu_s: float | None

    @property
    def has_ended(self) -> bool:
        """Whether it no longer runs."""
        return self.state in _ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """An iterator of a loader, or a loader between two, as python.dataloaders has it.

    Attributes:
        batch: How many batches were given in this epoch; None between two.
    """

    loader: int
    dataset: str
    batches: int | None
    batch_size: int | None
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    batch: int | None
    given: int
    mean_wait: float | None
    last_wait: float | None
    waiting: bool
    waited: float | None
    thread_id: int | None
    outstanding: int | None
    workers: tuple[Worker, ...]

    @property
    def is_stalled(self) -> bool:
        """Whether its next batch has been waited for long, or since before the agent came."""
        return self.waiting and (self.waited is None or self.waited >= STALL_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A wait that is too long.

    Attributes:
        loader: Whose batch is waited for.
        thread: The thread that waits; None where its stack is not known.
        worker: Whose turn it is; None without workers, and where any of them will do.
        stack: What that worker does, or without workers what the waiting thread does.
        note: Why there is no stack, if there is none.
    """

    loader: Loader
    thread: ThreadStack | None
    worker: Worker | None
    stack: ThreadStack | None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderReport(InNotebooks):
    """All loaders of a process, and the waits that are too long.

    Attributes:
        steps: How many of the last steps the share is of.
        wait_share: The share of their time in which the training waited for data; None where no
            step has ended.
    """

    loaders: tuple[Loader, ...]
    stalls: tuple[Stall, ...]
    steps: int = 0
    wait_share: float | None = None


def report_on(process: Process) -> LoaderReport:
    """Ask a process for its loaders, and the workers that it waits for for their stacks.

    Raises:
        ProbingError: The process does not answer.
    """
    loaders = tuple(_loaders_of(process.live(DATALOADERS.name)))
    waited = process.query(_WAITED).to_pylist()[0]
    stalled = [loader for loader in loaders if loader.is_stalled]
    if not stalled:
        return LoaderReport(loaders=loaders, stalls=(), **waited)
    own = process.backtrace()
    is_here = process.folder is not None
    stalls = tuple(_stall_of(loader, own, is_here=is_here) for loader in stalled)
    return LoaderReport(loaders=loaders, stalls=stalls, **waited)


def _loaders_of(live: LiveRows) -> Iterator[Loader]:
    """The rows put together by iterator: those of one follow each other."""
    of_worker = tuple(Worker.__dataclass_fields__)
    of_loader = tuple(name for name in Loader.__dataclass_fields__ if name != "workers")
    for facts, group in groupby(live.dicts(), key=lambda row: tuple(row.get(n) for n in of_loader)):
        found = [row for row in group if row.get("worker") is not None]
        workers = tuple(Worker(**{name: row.get(name) for name in of_worker}) for row in found)  # type: ignore[arg-type]
        yield Loader(**dict(zip(of_loader, facts, strict=True)), workers=workers)


def _stall_of(loader: Loader, own: Backtrace, *, is_here: bool) -> Stall:
    """Find out what is behind a wait."""
    threads = {thread.thread_id: thread for thread in own.threads}
    thread = threads.get(loader.thread_id or 0)
    worker = next((worker for worker in loader.workers if worker.awaited), None)
    if not loader.workers:
        return Stall(loader=loader, thread=thread, worker=None, stack=_own_part(thread))
    if worker is None or worker.has_ended or worker.pid is None:
        return Stall(loader=loader, thread=thread, worker=worker, stack=None)
    if not is_here:
        note = f"its stack can be had on its own machine: probing {worker.pid} backtrace"
        return Stall(loader=loader, thread=thread, worker=worker, stack=None, note=note)
    try:
        stacks = connect(worker.pid).backtrace().threads
    except ProbingError as error:
        note = f"its stack cannot be had: {error.message}"
        return Stall(loader=loader, thread=thread, worker=worker, stack=None, note=note)
    stack = _own_part(stacks[0] if stacks else None)
    return Stall(loader=loader, thread=thread, worker=worker, stack=stack)


def _own_part(thread: ThreadStack | None) -> ThreadStack | None:
    """The part of a stack that makes the batch, without what has led there."""
    if thread is None:
        return None
    frames = thread.frames
    for index, frame in enumerate(frames):
        if frame.func.rpartition(".")[2] in _ENTRIES and frame.file.endswith(_ENTRY_FILES):
            return dataclasses.replace(thread, frames=frames[:index] or frames)
    return thread


def sentence_of(stall: Stall) -> str:
    """One sentence that says who waits for whom, and where that one is."""
    loader = stall.loader
    who = "the training"
    if stall.thread is not None and not stall.thread.is_main:
        who = f'thread {stall.thread.thread_id} "{stall.thread.name}"'
    since = "" if loader.waited is None else f" {age(loader.waited)}"
    says = f"loader {loader.loader}: {who} has waited{since} for "
    if not loader.workers:
        return f"{says}a batch that it makes itself{_place(stall, 'in')}"
    if stall.worker is None:
        return f"{says}a batch of any of its {len(loader.workers)} workers"
    says += f"worker {stall.worker.worker} (pid {stall.worker.pid})"
    if stall.worker.has_ended:
        return f"{says}, which has ended"
    return f"{says}{_place(stall, 'which is in')}"


def _place(stall: Stall, joint: str) -> str:
    """Where a stack is, in the code of the job if it is in any, and what it does there."""
    if stall.stack is None or not stall.stack.frames:
        return f"; {stall.note}" if stall.note else ""
    frames = [frame for frame in stall.stack.frames if frame.kind == "python"] or [
        *stall.stack.frames
    ]
    frame = next((f for f in frames if waits.library_path(f.file) is None), frames[0])
    file = waits.library_path(frame.file) or frame.file.rpartition("/")[2]
    doing = f": {stall.stack.waiting}" if stall.stack.waiting else ""
    return f", {joint} {frame.func} ({file}:{frame.lineno}){doing}"
