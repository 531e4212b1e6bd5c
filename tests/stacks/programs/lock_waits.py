"""Threads that hold locks and wait for them: some in deadlocks, some for a healthy while.

Each scenario has threads named `scenario-1`, `scenario-2`. Prints `ready` once all are started.
Needs no torch.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

FOREVER_S = 10**6
FIRST, SECOND = threading.Lock(), threading.Lock()


class Account:
    """Something with a lock that everybody takes who changes it."""

    __slots__ = ("lock",)

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock


class Bank:
    def __init__(self) -> None:
        self.one, self.other = Account(threading.Lock()), Account(threading.Lock())

    def move(self, meet: threading.Barrier) -> None:
        with self.one.lock:
            meet.wait()
            with self.other.lock:
                pass

    def move_back(self, meet: threading.Barrier) -> None:
        with self.other.lock:
            meet.wait()
            with self.one.lock:
                pass


def start(scenario: str, *targets: Callable[[], None]) -> None:
    """Start the threads of a scenario."""
    for number, target in enumerate(targets, 1):
        threading.Thread(target=target, name=f"{scenario}-{number}", daemon=True).start()


def attributes() -> None:
    """Two locks in opposite order, which are attributes of attributes; one in a slot."""
    bank, meet = Bank(), threading.Barrier(2)
    start("attributes", lambda: bank.move(meet), lambda: bank.move_back(meet))


def module_names() -> None:
    """Locks of a module, both in one `with`."""
    meet = threading.Barrier(2)

    def one() -> None:
        with FIRST:
            meet.wait()
            with SECOND:
                pass

    class Late:
        """Enters when both have the first of their locks."""

        def __enter__(self) -> None:
            meet.wait()

        def __exit__(self, *_: object) -> None: ...

    def other() -> None:
        late = Late()
        with SECOND, late, FIRST:
            pass

    start("module_names", one, other)


def rlocks() -> None:
    """RLocks taken in functions that have returned: they know their owner themselves."""
    one, other, meet = threading.RLock(), threading.RLock(), threading.Barrier(2)

    def take(lock: threading.RLock) -> None:
        lock.acquire()

    def forth() -> None:
        take(one)
        meet.wait()
        other.acquire()

    def back() -> None:
        take(other)
        meet.wait()
        one.acquire()

    start("rlocks", forth, back)


def conditions() -> None:
    """Conditions, whose locks are taken by entering them."""
    one, other = threading.Condition(threading.Lock()), threading.Condition()
    meet = threading.Barrier(2)

    def forth() -> None:
        with one:
            meet.wait()
            with other:
                pass

    def back() -> None:
        with other:
            meet.wait()
            with one:
                pass

    start("conditions", forth, back)


def calls() -> None:
    """Taken by a call, and given back in the end."""
    one, other, meet = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def forth() -> None:
        one.acquire()
        try:
            meet.wait()
            other.acquire()
        finally:
            one.release()

    def back() -> None:
        other.acquire()
        try:
            meet.wait()
            one.acquire()
        finally:
            other.release()

    start("calls", forth, back)


def three() -> None:
    """A circle of three."""
    locks, meet = [threading.Lock() for _ in range(3)], threading.Barrier(3)

    def take(mine: threading.Lock, yours: threading.Lock) -> None:
        with mine:
            meet.wait()
            with yours:
                pass

    def taking(number: int) -> Callable[[], None]:
        return lambda: take(locks[number], locks[(number + 1) % 3])

    start("three", *map(taking, range(3)))


def joining() -> None:
    """One waits with a lock for the end of another, which wants the lock."""
    lock, is_held = threading.Lock(), threading.Event()

    def wanting() -> None:
        is_held.wait()
        with lock:
            pass

    other = threading.Thread(target=wanting, name="joining-2", daemon=True)

    def ending() -> None:
        with lock:
            is_held.set()
            other.join()

    other.start()
    start("joining", ending)


def importing() -> None:
    """One imports a module, which wants a lock of who waits for that import."""
    folder = Path("modules")
    folder.mkdir()
    sys.path.insert(0, str(folder.resolve()))
    text = "import __main__\n__main__.BEGUN.set()\nwith __main__.WANTED:\n    pass\n"
    (folder / "wanting_a_lock.py").write_text(text)

    def wanting() -> None:
        with WANTED:
            BEGUN.wait()
            importlib.import_module("wanting_a_lock")

    def loading() -> None:
        while not WANTED.locked():
            time.sleep(0.001)
        importlib.import_module("wanting_a_lock")

    start("importing", wanting, loading)


WANTED, BEGUN = threading.Lock(), threading.Event()


def twice() -> None:
    """A lock that is no RLock, taken again by who has it."""
    lock = threading.Lock()

    def taking() -> None:
        with lock:
            again()

    def again() -> None:
        with lock:
            pass

    start("twice", taking)


def held() -> None:
    """Nothing is wrong: a lock is held for a while by a thread that gets on."""
    lock, is_held = threading.Lock(), threading.Event()

    def holding() -> None:
        with lock:
            is_held.set()
            time.sleep(FOREVER_S)

    def waiting() -> None:
        is_held.wait()
        with lock:
            pass

    start("held", waiting, holding)


def limits() -> None:
    """Two locks in opposite order; both give up after some time."""
    one, other, meet = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def forth() -> None:
        with one:
            meet.wait()
            other.acquire(timeout=FOREVER_S)

    def back() -> None:
        with other:
            meet.wait()
            one.acquire(timeout=FOREVER_S)

    start("limits", forth, back)


def signals() -> None:
    """A lock that another thread releases than the one that took it: nobody holds it."""
    done = threading.Lock()

    def waiting() -> None:
        done.acquire()
        done.acquire()

    def working() -> None:
        time.sleep(FOREVER_S)
        done.release()

    start("signals", waiting, working)


def lent() -> None:
    """A condition gives its lock back while it is waited for: nobody holds it."""
    ready, is_there = threading.Condition(threading.Lock()), threading.Event()

    def waiting() -> None:
        with ready:
            is_there.set()
            ready.wait()

    def polling() -> None:
        is_there.wait()
        while True:
            with ready:
                time.sleep(0.001)

    start("lent", waiting, polling, polling)


def contended() -> None:
    """Locks that are always taken in the same order, by threads that do little else."""
    one, other = threading.Lock(), threading.Lock()

    def working() -> None:
        while True:
            with one:
                with other:
                    time.sleep(0.0002)
                time.sleep(0.0002)

    start("contended", *[working] * 4)


def shared() -> None:
    """Locks between processes: one that a thread has, one that a child has, and a semaphore."""
    own, childs, counted = (
        multiprocessing.Lock(),
        multiprocessing.Lock(),
        multiprocessing.Semaphore(0),
    )
    is_held = threading.Event()
    reading, writing = os.pipe()
    childs.acquire()
    if os.fork() == 0:  # it has what was taken before, and ends with its parent
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    childs._semlock._after_fork()  # type: ignore[attr-defined]

    def holding() -> None:
        with own:
            is_held.set()
            time.sleep(FOREVER_S)

    def waiting() -> None:
        is_held.wait()
        with own:
            pass

    def waiting_for_a_child() -> None:
        childs.acquire()

    def waiting_for_many() -> None:
        counted.acquire()

    start("shared", waiting, holding, waiting_for_a_child, waiting_for_many)


SCENARIOS = (
    *(
        shared,
        attributes,
        module_names,
        rlocks,
        conditions,
        calls,
        three,
        joining,
        importing,
        twice,
    ),
    *(held, limits, signals, lent, contended),
)


def main() -> None:
    """Start all, and go on for ten minutes at most."""
    for scenario in SCENARIOS:
        scenario()
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
