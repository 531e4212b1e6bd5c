"""The rows of python.dataloaders: iterators, and what the kernel tells of their workers.

Rules of this file: runs in the agent's thread, when somebody asks. Reads plain attributes of
torch's own iterators, at one go each, and runs no code of theirs; never asks a worker's `Process`
object, which would take the news of its death from the training.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ....linux import process
from ....messages.common import Backtrace, LiveRows
from ....safety.other_stacks import current_stacks
from ....stacks.wait_rules import FOR_A_WORKER
from ....tables import DATALOADERS
from ...eval.frame_names import locals_of
from .dataloaders import DataLoaders, Feed, Loader, next_task
from .loader_setup import setup_of


def dataloader_rows(loaders: DataLoaders | None) -> LiveRows:
    """One row per worker of every iterator that is known, or waited for, and per other loader."""
    found: list[dict[str, Any]] = []
    if loaders is not None:
        unseen = _meet_waiting(loaders)
        for iterator, feed in loaders.feeds():
            about = _facts_of(iterator, feed, began_before=unseen.get(id(iterator)))
            found += [about | worker for worker in _workers_of(iterator)]
        for shared, loader, setup in loaders.between_epochs():
            found.append({**setup, **_counts_of(loader, shared), "waiting": False})
    return LiveRows.of_dicts(DATALOADERS, found)


def with_workers_named(trace: Backtrace, loaders: DataLoaders) -> Backtrace:
    """The stacks, with the worker named in what a thread waits for that waits for its batch."""
    try:
        awaited = dict(_awaited_workers(loaders))
    except (AttributeError, LookupError, TypeError):  # an iterator of another library's making
        return trace
    threads = tuple(
        [
            dataclasses.replace(thread, waiting=awaited[thread.thread_id])
            if thread.waiting == FOR_A_WORKER and thread.thread_id in awaited
            else thread
            for thread in trace.threads
        ]
    )
    return dataclasses.replace(trace, threads=threads)


def _awaited_workers(loaders: DataLoaders) -> Iterator[tuple[int, str]]:
    """Each thread that waits for a certain worker's batch, and the sentence that says so."""
    for iterator, feed in loaders.feeds():
        for row in _workers_of(iterator) if feed.since_ns else ():
            if row.get("awaited"):
                worker = f"DataLoader worker {row['worker']} (pid {row['pid']})"
                yield feed.thread_id, FOR_A_WORKER.replace("a DataLoader worker", worker)


def _meet_waiting(loaders: DataLoaders) -> dict[int, int]:
    """Meet the iterators that threads have been waiting for since before the agent came.

    Returns:
        The kernel number of the thread that waits, by ``id(iterator)``.
    """
    found: dict[int, int] = {}
    stacks = current_stacks()
    del stacks[threading.get_ident()]  # this very frame, which would hold itself and all others
    for ident, stack in stacks.items():
        iterator = _awaited_in(stack, loaders.waiting_code)
        if iterator is not None and not loaders.feed_of(iterator).since_ns:
            found[id(iterator)] = _native_id(ident)
    return found


def _awaited_in(stack: list[FrameType], code: object) -> Any:
    """The iterator whose ``__next__`` a stack is in; None when it is in none."""
    for one in stack:
        if one.f_code is code:
            return locals_of(one).get("self")
    return None


def _native_id(ident: int) -> int:
    """The kernel's number of a thread; 0 where Python does not know it."""
    for thread in threading.enumerate():
        if thread.ident == ident:
            return thread.native_id or 0
    return 0


def _facts_of(iterator: Any, feed: Feed, *, began_before: int | None) -> dict[str, Any]:
    """What is the same in all rows of an iterator.

    Args:
        began_before: The thread that has waited since before the agent came, if one has.
    """
    loader, since, thread_id = feed.loader, feed.since_ns, feed.thread_id
    return {
        **setup_of(iterator, feed.length),
        **_counts_of(loader, iterator._index_sampler),
        "batch": iterator._num_yielded,
        "waiting": bool(since) or began_before is not None,
        "waited": (time.perf_counter_ns() - since) * 1e-9 if since else None,
        "thread_id": thread_id if since else began_before,
        "outstanding": iterator._tasks_outstanding if iterator._num_workers > 0 else None,
    }


def _counts_of(loader: Loader, of_batches: Any) -> dict[str, Any]:
    """What a loader has done so far.

    Args:
        of_batches: Its sampler of batches, where it is known by that.
    """
    return {
        "loader": loader.number,
        "sampler_epoch": _epoch_of(of_batches),
        "epochs": loader.epochs,
        "given": loader.given,
        "mean_wait": loader.waited_ns / loader.given * 1e-9 if loader.given else None,
        "last_wait": loader.last_ns * 1e-9 if loader.given else None,
    }


def _epoch_of(of_batches: Any) -> int | None:
    """The epoch that was told to what says in which order samples come."""
    epoch = getattr(getattr(of_batches, "sampler", of_batches), "epoch", None)
    return epoch if type(epoch) is int and epoch >= 0 else None


def _workers_of(iterator: Any) -> Iterator[dict[str, Any]]:
    """The columns of each worker; a single row without any for a loader that has none."""
    workers = list(getattr(iterator, "_workers", ()))
    if not workers:
        yield {}
    in_order = getattr(iterator, "_in_order", True)
    awaited = next_task(iterator)[1] if workers else None
    parents = {os.getpid(), _fork_server()}
    for number, worker in enumerate(workers):
        pid = getattr(getattr(worker, "_popen", None), "pid", None)
        facts = process.facts(pid) if pid else None
        if facts is not None and facts.parent not in parents:
            facts = None  # another process has its number by now
        yield {
            "worker": number,
            "awaited": number == awaited if in_order else None,
            "tasks": iterator._workers_num_tasks[number],
            "pid": pid,
            "state": facts.state if facts else None,
            "resident_bytes": facts.resident_bytes if facts else None,
            "cpu_s": facts.cpu_s if facts else None,
        }


def _fork_server() -> int | None:
    """The process that forks those that multiprocessing starts so, which are not our children."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    pid: int | None = getattr(server, "_forkserver_pid", None)
    return pid
