"""Who holds a lock that functions lend, as the frames of threads tell."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from probing.agent.sources.stacks.awaited import Waits
from probing.messages.common import Awaited
from tests.harness.targets import wait_until

pytestmark = pytest.mark.anypython


class _Shop:
    """Something whose lock its methods take, give back and take again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_there, self.goes_on = threading.Event(), threading.Event()

    def lends(self) -> None:
        with self.lock:
            self.gives()

    def gives(self) -> None:
        self.lock.release()
        try:
            self.is_there.set()
            self.goes_on.wait()
        finally:
            self.lock.acquire()

    def has_lent(self) -> None:
        with self.lock:
            self.gives_for_a_while()

    def gives_for_a_while(self) -> None:
        self.lock.release()
        self.lock.acquire()
        self.is_there.set()
        self.goes_on.wait()

    def takes(self) -> None:
        with self.lock:
            self.is_there.set()

    def takes_twice(self) -> None:
        with self.lock:
            self.takes()

    def takes_a_name_twice(self) -> None:
        lock = self.lock
        with lock, lock:
            pass


@contextlib.contextmanager
def _running(function: Callable[[], None]) -> Iterator[int]:
    """The number of a thread that runs a function, which ends once that can go on."""

    def run() -> None:
        with contextlib.suppress(RuntimeError):  # a lock that another thread has released
            function()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert thread.ident is not None
    yield thread.ident
    thread.join()


def _lock_of(*threads: int) -> Awaited:
    """What the first of some threads waits for, as soon as that is a lock."""

    def look() -> Awaited | None:
        frames = sys._current_frames()
        found = Waits({one: frames[one] for one in threads}, {one: one for one in threads}).found()
        awaited = found.get(threads[0])
        return awaited if awaited is not None and awaited.kind == "lock" else None

    return wait_until(look, "a wait for a lock")


def test_who_has_lent_a_lock_does_not_hold_it() -> None:
    """A method that waits to have back what it gave waits for nobody that is known."""
    shop = _Shop()
    with _running(shop.lends) as lender:
        shop.is_there.wait()
        with shop.lock:
            shop.goes_on.set()
            assert _lock_of(lender).holder_id is None


def test_who_has_a_lock_back_holds_it() -> None:
    """It is named as if its lock had never been lent."""
    shop = _Shop()
    with _running(shop.has_lent) as lender:
        shop.is_there.wait()
        with _running(shop.takes) as waiter:
            awaited = _lock_of(waiter, lender)
            shop.goes_on.set()
    assert (awaited.holder_id, awaited.is_certain) == (lender, True)


@pytest.mark.parametrize(
    ("method", "is_certain"), [("takes_twice", False), ("takes_a_name_twice", True)]
)
def test_a_lock_of_its_own(method: str, *, is_certain: bool) -> None:
    """Who waits for what it took itself certainly does only where that is no attribute."""
    shop = _Shop()
    with _running(getattr(shop, method)) as taker:
        awaited = _lock_of(taker)
        shop.lock.release()
    assert (awaited.holder_id, awaited.is_certain) == (taker, is_certain)
