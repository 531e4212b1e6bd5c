"""Threads that wait for a notice, for results, for semaphores, and functions that run at exit.

The argument names what the main thread waits for; `ready` is printed just before. Needs no torch.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from typing import Any

LIFETIME_S = 600
LONG_S = 10**6


def ready() -> None:
    print("ready", flush=True)


def start(target: Callable[[], object], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


def event() -> None:
    """An event that a thread sets once it has been told itself, which nobody does."""
    loaded, asked = threading.Event(), threading.Event()

    def load() -> None:
        asked.wait()
        loaded.set()

    start(load, "loader")
    ready()
    loaded.wait()


def condition() -> None:
    """A condition that a thread notifies after a long sleep."""
    changed = threading.Condition()

    def produce() -> None:
        time.sleep(LONG_S)
        with changed:
            changed.notify_all()

    start(produce, "producer")
    with changed:
        ready()
        changed.wait()


def item() -> None:
    """An item of a queue from a thread that wants the lock which this one has."""
    items: queue.Queue[int] = queue.Queue()
    lock = threading.Lock()

    def produce() -> None:
        with lock:
            items.put(1)

    with lock:
        start(produce, "producer")
        ready()
        items.get()


def room() -> None:
    """Room in a queue, which no other thread knows."""
    items: queue.Queue[int] = queue.Queue(1)
    items.put(1)
    ready()
    items.put(2)


def barrier() -> None:
    """A barrier to which two of three have come."""
    meet = threading.Barrier(3)
    start(meet.wait, "other")
    ready()
    meet.wait()


def semaphore() -> None:
    """A semaphore that another thread has; whether others may have it too is not known."""
    slots, taken = threading.Semaphore(1), threading.Event()

    def hold() -> None:
        with slots:
            taken.set()
            time.sleep(LONG_S)

    start(hold, "holder")
    taken.wait()
    ready()
    slots.acquire()


def bounded() -> None:
    """A bounded semaphore and a lock, taken in opposite order."""
    slots, lock = threading.BoundedSemaphore(1), threading.Lock()
    meet = threading.Barrier(2)

    def hold() -> None:
        with slots:
            meet.wait()
            with lock:
                pass

    start(hold, "holder")
    with lock:
        meet.wait()
        ready()
        with slots:
            pass


def bounded_by_two() -> None:
    """The same of a semaphore that two may have, where the other one is asleep."""
    slots, lock = threading.BoundedSemaphore(2), threading.Lock()
    meet = threading.Barrier(3)

    def hold() -> None:
        with slots:
            meet.wait()
            with lock:
                pass

    def sleep() -> None:
        with slots:
            meet.wait()
            time.sleep(LONG_S)

    start(hold, "holder")
    start(sleep, "sleeper")
    with lock:
        meet.wait()
        ready()
        with slots:
            pass


async def part() -> None:
    await asyncio.sleep(LONG_S)


def own_loop() -> None:
    """A coroutine that the event loop is to run in whose own thread it is waited for."""

    async def main() -> None:
        found = asyncio.run_coroutine_threadsafe(part(), asyncio.get_running_loop())
        ready()
        found.result()

    asyncio.run(main())


def begun_in_own_loop() -> None:
    """The same of a coroutine that has begun."""

    async def main() -> None:
        found = asyncio.run_coroutine_threadsafe(part(), asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        ready()
        found.result()

    asyncio.run(main())


def other_loop() -> None:
    """A coroutine that sleeps in the event loop of another thread."""
    loop = asyncio.new_event_loop()
    start(loop.run_forever, "loop")
    found = asyncio.run_coroutine_threadsafe(part(), loop)
    ready()
    found.result()


def pool_and_loop() -> None:
    """A task of a pool waits for a coroutine of the loop, and the loop's thread for the task."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="uploads") as uploads:
            done = uploads.submit(lambda: asyncio.run_coroutine_threadsafe(part(), loop).result())
            ready()
            done.result()

    asyncio.run(main())


def no_loop() -> None:
    """A coroutine that was given to an event loop which nobody runs."""
    found = asyncio.run_coroutine_threadsafe(part(), asyncio.new_event_loop())
    ready()
    found.result()


def some() -> None:
    """The next of three tasks, of which two run: functions of C, which have no frame."""
    uploads = ThreadPoolExecutor(2, thread_name_prefix="uploads")
    found = [uploads.submit(time.sleep, LONG_S) for _ in range(3)]
    ready()
    for _ in as_completed(found):
        pass


def first_of_two() -> None:
    """The first of a task that waits for the lock which this thread has, and of one that sleeps."""
    uploads, lock = ThreadPoolExecutor(2, thread_name_prefix="uploads"), threading.Lock()
    with lock:
        sleep = functools.partial(time.sleep, LONG_S)
        found: list[Future[Any]] = [uploads.submit(lock.acquire), uploads.submit(sleep)]
        ready()
        wait(found, return_when=FIRST_COMPLETED)


def every() -> None:
    """All tasks of a pool, one of which waits for one that is queued behind it."""
    uploads = ThreadPoolExecutor(1, thread_name_prefix="uploads")

    def nothing() -> None: ...

    def whole() -> None:
        wait([uploads.submit(nothing)])

    found: list[Future[None]] = [uploads.submit(whole)]
    ready()
    wait(found)


def processes() -> None:
    """A task of a pool of processes."""
    found = ProcessPoolExecutor(1).submit(time.sleep, LONG_S)
    ready()
    found.result()


def at_exit() -> None:
    """A function that runs at exit and wants a lock that another thread has."""
    lock, taken = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            time.sleep(LONG_S)

    def flush() -> None:
        ready()
        with lock:
            pass

    start(hold, "holder")
    taken.wait()
    atexit.register(flush)


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way
    for way in (
        *(event, condition, item, room, barrier, semaphore, bounded, bounded_by_two),
        *(own_loop, begun_in_own_loop, other_loop, pool_and_loop, no_loop),
        *(some, first_of_two, every, processes, at_exit),
    )
}

if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    WAYS[sys.argv[1]]()
