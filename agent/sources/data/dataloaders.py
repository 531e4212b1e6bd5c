"""Records how long each batch was waited for, by standing in for the DataLoader's ``__next__``.

Rules of this file: `next_batch` below runs at every batch, in whichever thread fetches it. Whatever
goes wrong in it, the original is called exactly once, and its batch or exception is passed on
unchanged. It keeps no batch, reads no tensor's data, and holds iterators by weak references only.
Waits are recorded in every thread; those of the training thread are also told to the phases of the
step, but for one inside another. While it waits, a thread's state says that it fetches: without
workers the thread runs the dataset itself, and whatever modules that calls.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ....ring.format import DONE, FAILED, NULL_INT
from ....ring.writer import RingWriter
from ....safety.guard import Guard, pass_on
from ..shared.recording import Recording
from ..shared.thread_state import ThreadState
from ..stand_in import PlainSource, StandIn
from ..steps.evaluations import Wait
from .batches import NO_FACTS, BatchFacts, BatchKinds
from .loader_setup import Setup, setup_of

_MOST_SETUPS = 16


class Loader:
    """What all iterators of one DataLoader have in common.

    Attributes:
        epochs: Iterators of it that were met; of one with persistent workers its rounds.
        given: Batches given since the agent met it.
        waited_ns: How long they were waited for, together.
        last_ns: How long the last of them was.
    """

    __slots__ = ("epochs", "given", "last_ns", "number", "waited_ns")

    def __init__(self, number: int) -> None:
        self.number = number
        self.epochs = 0
        self.given = 0
        self.waited_ns = 0
        self.last_ns = 0


class Feed:
    """One iterator of a DataLoader, as long as it lives.

    Attributes:
        length: The batches of an epoch; None where it does not tell.
        since_ns: When the wait in progress began; 0 when there is none.
        thread_id: The thread that waits.
    """

    __slots__ = ("iterator", "length", "loader", "since_ns", "thread_id")

    def __init__(self, iterator: weakref.ref[object], loader: Loader, length: int | None) -> None:
        self.iterator = iterator
        self.loader = loader
        self.length = length
        self.since_ns = 0
        self.thread_id = 0


class _Wait:
    """A wait in progress.

    Attributes:
        word: Its row; None while nothing is recorded yet.
        worker: Whose turn it is; -1 where that is not known.
        place: The number of the task that is awaited.
        depth: How many other waits the thread is inside of.
        thread: The state of the thread that waits.
    """

    __slots__ = ("depth", "feed", "place", "start_ns", "thread", "word", "worker")

    def __init__(self, feed: Feed, thread: ThreadState, *, place: int, worker: int | None) -> None:
        self.feed = feed
        self.thread = thread
        self.depth = thread.fetches
        self.place = place
        self.worker = -1 if worker is None else worker
        self.word: int | None = None
        self.start_ns = time.perf_counter_ns()


class DataLoaders(PlainSource):
    """Puts the recording stand-in in place, and takes it away again.

    Attributes:
        setups: What the first loaders that were met are set up with, by what they are called.
    """

    def __init__(self, recording: Recording, batches: RingWriter) -> None:
        self._module: Any = sys.modules.get("torch.utils.data.dataloader")
        self._recording = recording
        self._ring = batches
        self._kinds = BatchKinds(recording.names)
        self._worker_at = next(
            f.offset for f in batches.layout.opening if f.column.name == "worker"
        )
        self._loaders: dict[int, tuple[weakref.ref[Any], Loader]] = {}
        self._numbers = 0
        self.setups: dict[str, Setup] = {}
        self._feeds: dict[int, Feed] = {}  # by id(iterator)
        self._methods: list[StandIn] = []
        self.is_on = False
        self.guard = Guard("dataloaders", self.stop)
        self.guard.on_fault = batches.count_dropped

    def start(self) -> None:
        """Put the stand-in in place; waits in progress are not recorded."""
        if self._module is None:  # a torch that has not loaded its data loader yet
            self._module = sys.modules.get("torch.utils.data.dataloader")
        self.is_on = True
        if not self._methods and self._module is not None:
            helpers = (self._begin, self._arrived, self._ended)
            iterator_class, loader_class = self._module._BaseDataLoaderIter, self._module.DataLoader
            self._methods = [
                StandIn(iterator_class, "__next__", self._next_batch, helpers),
                StandIn(loader_class, "__iter__", self._make_iterator, [self._made]),
            ]
        for method in self._methods:
            method.start()

    def stop(self) -> None:
        """Put the original back; where another wrapper lies over ours, calls just pass through."""
        self.is_on = False
        super().stop()

    def close(self) -> None:
        """Stop for good: forget the loaders that were met."""
        self.stop()
        self._feeds.clear()
        self._loaders.clear()

    def feeds(self) -> Iterator[tuple[Any, Feed]]:
        """The iterators that have been met and are alive, for another thread to read."""
        for feed in sorted(self._feeds.values(), key=lambda feed: feed.loader.number):
            iterator = feed.iterator()
            if iterator is not None:
                yield iterator, feed

    def between_epochs(self) -> Iterator[tuple[Any, Loader, Setup]]:
        """The loaders that are alive without an iterator, by what all theirs share."""
        at_work = {feed.loader.number for _, feed in self.feeds()}
        for reference, loader in list(self._loaders.values()):
            shared, setup = reference(), self.setups.get(f"loader {loader.number}")
            if shared is not None and setup is not None and loader.number not in at_work:
                yield shared, loader, setup

    def feed_of(self, iterator: Any) -> Feed:
        """What is known of an iterator; it is met now at the latest."""
        feed = self._feeds.get(id(iterator))
        if feed is None or feed.iterator() is not iterator:
            feed = Feed(
                _forget_with(self._feeds, iterator, self.guard),
                self._loader_of(iterator),
                _length_of(iterator),
            )
            self._feeds[id(iterator)] = feed
        return feed

    @property
    def waiting_code(self) -> Any:
        """The code that a thread runs while it waits: that of the original ``__next__``."""
        return getattr(self._methods[0].original, "__code__", None) if self._methods else None

    def _loader_of(self, iterator: Any) -> Loader:
        """The loader of an iterator, known by what all its iterators share: the sampler."""
        for shared in (iterator._index_sampler, iterator._dataset, iterator):
            known = self._loaders.get(id(shared))
            if known is not None and known[0]() is shared:
                return known[1]
            try:
                reference = _forget_with(self._loaders, shared, self.guard)
            except TypeError:  # a list, for one, cannot be referred to weakly
                continue
            loader = Loader(self._numbers)
            self._numbers += 1
            self._loaders[id(shared)] = (reference, loader)
            if len(self.setups) < _MOST_SETUPS:
                setup = setup_of(iterator, _length_of(iterator))
                self.setups[f"loader {loader.number}"] = setup
            return loader
        raise TypeError("this iterator cannot be remembered")

    def _make_iterator(self, original: Callable[..., object], /, *args: object) -> Any:
        """What stands in for a loader's ``__iter__``, which starts the workers."""
        start_ns, thread = time.perf_counter_ns(), self._recording.threads.state
        around = thread.fetches
        try:
            thread.fetches = around + (not thread.is_agents)
            iterator = original(*args)
        finally:
            thread.fetches = around
        self.guard.run(self._made, start_ns)
        return iterator

    def _made(self, start_ns: int) -> None:
        """An iterator has been made: to the training, that was a wait for data."""
        thread = self._recording.threads.state
        if thread.is_agents or thread.fetches:
            return
        if self.is_on and self._is_trainings(thread.native_id):
            took_ns = time.perf_counter_ns() - start_ns
            self._recording.rows.data_waited(Wait(start_ns, took_ns, None, None))

    def _next_batch(self, original: Callable[[Any], Any], iterator: object) -> Any:
        """What stands in for an iterator's ``__next__``."""
        try:
            wait = self._begin(iterator)
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
            wait = None
        if wait is None:
            return original(iterator)
        try:
            wait.thread.fetches = wait.depth + 1
            batch = original(iterator)
        except BaseException as error:
            self.guard.run(self._ended, wait, error)
            raise
        finally:
            wait.thread.fetches = wait.depth
        try:
            self._arrived(wait, iterator, batch)
        except Exception:  # noqa: BLE001 - never harm the host
            self.guard.fault()
        return batch

    def _begin(self, iterator: Any) -> _Wait | None:
        """A thread begins to wait; None when that is nobody's business."""
        recording = self._recording
        thread = recording.threads.state
        if not self.is_on or thread.is_agents:
            return None
        feed = self.feed_of(iterator)
        feed.loader.epochs += not iterator._num_yielded
        place, worker = next_task(iterator)
        wait = _Wait(feed, thread, place=place, worker=worker)
        if not recording.awaits_step:
            wait.word = self._ring.open_row(
                NULL_INT if worker is None else worker,
                wait.start_ns,
                recording.now.step,
                feed.loader.number,
                iterator._num_yielded,
                thread.native_id,
            )
        feed.since_ns, feed.thread_id = wait.start_ns, thread.native_id
        if recording.collectives is not None:
            recording.collectives.rows.poll_seldom(wait.start_ns)
        return wait

    def _arrived(self, wait: _Wait, iterator: Any, batch: Any) -> None:
        """The batch is there."""
        took = time.perf_counter_ns() - wait.start_ns
        clock = self._recording.costs.clock
        start = clock()
        wait.feed.since_ns = 0
        if not self.is_on:
            return
        loader = wait.feed.loader
        loader.given += 1
        loader.waited_ns += took
        loader.last_ns = took
        facts = NO_FACTS
        try:
            facts = self._kinds.facts_of(
                batch, is_collated=iterator._auto_collation, is_pinned=iterator._pin_memory
            )
            self._recording.objects.inputs.batch_came(batch)
        except Exception:  # noqa: BLE001 - a tensor class of the user's may do anything
            self.guard.fault()
        if self._recording.safe_points.looks and self._is_trainings(wait.thread.native_id):
            self._recording.safe_points.batch_came(batch)
        self._correct_worker(wait, iterator)
        self._close(wait, DONE, facts, took, is_exhausted=False)
        self._recording.costs.add("dataloaders", clock() - start)

    def _ended(self, wait: _Wait, error: BaseException) -> None:
        """The wait has ended without a batch; the exception goes on to the caller."""
        try:
            is_exhausted = isinstance(error, StopIteration)
            took = time.perf_counter_ns() - wait.start_ns
            wait.feed.since_ns = 0
            if self.is_on:
                state = DONE if is_exhausted else FAILED
                self._close(wait, state, NO_FACTS, took, is_exhausted=is_exhausted)
        except Exception:  # noqa: BLE001 - never harm the host
            self._fault()

    def _close(
        self, wait: _Wait, state: int, facts: BatchFacts, took: int, *, is_exhausted: bool
    ) -> None:
        """Complete the row, and tell the phases of the step."""
        if wait.word is None:
            return
        pinned, tensors, device, samples, tokens, size = facts
        self._ring.close_row(
            wait.word, state, pinned, is_exhausted, tensors, device, samples, tokens, size, took
        )
        self._ring.release_pages(wait.word)
        if not wait.depth and self._is_trainings(wait.thread.native_id):
            came = state == DONE and not is_exhausted
            known = None if samples == NULL_INT else samples
            told = Wait(wait.start_ns, took, known, None if tokens == NULL_INT else tokens, came)
            if came:  # a loader at its end may end an epoch, of which the script tells then
                self._recording.ended_step = None
            self._recording.rows.data_waited(told)

    def _correct_worker(self, wait: _Wait, iterator: Any) -> None:
        """Write down that the batch came from another worker than the one whose turn it was.

        In order it is known which batch came; out of order nobody says who made it.
        """
        if wait.worker < 0 or wait.word is None:
            return
        is_that_one = getattr(iterator, "_in_order", True) and (
            iterator._rcvd_idx == wait.place + 1
        )
        if not is_that_one and self._ring.still_holds(wait.word):
            at = self._ring.offset_of(wait.word) + self._worker_at
            self._ring.buffer[at : at + 8] = NULL_INT.to_bytes(8, "little", signed=True)

    def _is_trainings(self, thread_id: int) -> bool:
        """Whether a thread is the one that trains; before any has, the main thread is meant."""
        training = self._recording.training_thread or threading.main_thread().native_id
        return thread_id == training

    def _fault(self) -> None:
        """Note the exception in hand, unless it is that of a wait which ends after we have gone."""
        if self.is_on:
            self.guard.fault()
        else:
            pass_on()


def _forget_with(known: dict[int, Any], thing: object, guard: Guard) -> weakref.ref[Any]:
    """A weak reference that takes the entry of a thing out as it dies.

    Raises:
        TypeError: It cannot be referred to weakly.
    """
    key = id(thing)

    def forget(reference: weakref.ref[object]) -> None:
        entry = known.get(key)
        held = entry[0] if isinstance(entry, tuple) else getattr(entry, "iterator", None)
        if held is reference:
            del known[key]

    return weakref.ref(thing, functools.partial(guard.run, forget))


def next_task(iterator: Any) -> tuple[int, int | None]:
    """The number of the task that the next batch is of, and the worker that has it.

    Without workers the number is -1. There is no worker where any worker's batch will do, and
    where none is to come.
    """
    place = getattr(iterator, "_rcvd_idx", -1)
    if place < 0:
        return -1, None
    if not getattr(iterator, "_in_order", True):
        return place, None
    tasks, has_more = iterator._task_info, iterator._workers_status
    while place < iterator._send_idx:  # as torch does: a worker at its end leaves its tasks undone
        task = tasks.get(place)
        if task and (len(task) == 2 or has_more[task[0]]):
            return place, int(task[0])
        place += 1
    return place, None


def _length_of(iterator: Any) -> int | None:
    """The batches of an epoch, as its sampler tells; asked once, in the thread that iterates."""
    try:
        return len(iterator)
    except Exception:  # noqa: BLE001 - many samplers do not tell, and some are the user's
        pass_on()
        return None
