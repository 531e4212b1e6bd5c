"""How one of several comes to be alone where there are no locks.

Whoever wants to be alone puts a mark of his own, and then lists all marks. Who finds no other's is
alone: any later one lists after it has put its own, and so finds his. Two that come at once may
find each other; then both go back and try again a moment later. Rules of this file: nothing is
asked of a store but that a list shows what was put before it.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ...errors import HistoryBusy
from .objects import Store, at_once

T = TypeVar("T")
R = TypeVar("R")

_LEASE_NS = 120 * 10**9
"""A mark that is older than that was left by who was killed."""
_SAFE_S = 60.0
"""After that whoever is alone asks whether he still is; half of it, for he may be held up."""
_BATCH = 64
"""Four turns of `objects.at_once`: done in time where the store takes 4 s for each."""
_LONGEST_PAUSE_S = 3.0
_LOOKS = 9


class Held:
    """That one is alone, and until when."""

    def __init__(self, store: Store, mark: str, busy: str) -> None:
        self._store, self._mark, self._busy = store, mark, busy
        self._since_s = time.monotonic()

    def go_on(self) -> None:
        """Stay alone for a while longer; before whatever must not be done by two.

        Raises:
            HistoryBusy: It was too long, and another one may be.
        """
        if time.monotonic() - self._since_s > _SAFE_S:
            slow = "the store took so long to answer that, for all that is known,"
            raise HistoryBusy(f"{slow} {self._busy}")
        self._store.put(self._mark, b"1")
        self._since_s = time.monotonic()

    def stay(self) -> None:
        """Go on where that is due; within long work as often as one likes.

        Raises:
            HistoryBusy: See `go_on`.
        """
        if time.monotonic() - self._since_s > _SAFE_S / 4:
            self.go_on()

    def renew(self) -> None:
        """Stay alone after whatever time, if nobody came meanwhile.

        Whoever comes after the time of a mark removes it, and has one of his own until he is done.
        So if the old one is there beside a new one, and no other's, nobody has been alone since.

        Raises:
            HistoryBusy: Somebody came.
        """
        folder, old = self._mark.rpartition("/")[0], self._mark
        self._mark, now_s = f"{folder}/{secrets.token_hex(8)}", time.monotonic()
        self._store.put(self._mark, b"1")
        try:
            for _ in range(_LOOKS):
                found = {one.name for one in self._store.objects(folder)}
                if old not in found:
                    break
                if found == {old, self._mark}:
                    self._since_s = now_s
                    return
                time.sleep(random.uniform(0, 0.5))  # noqa: S311 - no secret; others go back
            raise HistoryBusy(self._busy)
        finally:
            self._store.remove([old])

    def leave(self) -> None:
        """Be alone no more."""
        self._store.remove([self._mark])

    def at_once(self, function: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """What a function says of each of many values, as `objects.at_once`; stays alone meanwhile.

        Raises:
            HistoryBusy: See `go_on`.
        """
        done: list[R] = []
        for at in range(0, len(values), _BATCH):
            done += at_once(function, values[at : at + _BATCH])
            self.stay()
        return done


@contextlib.contextmanager
def held(store: Store, what: str, *, wait_s: float, busy: str) -> Iterator[Held]:
    """Be alone with something for a while.

    Args:
        busy: What is going on where another one is.

    Raises:
        HistoryBusy: Another one was, all the time.
        StoreUnreachable: The store cannot be asked.
    """
    mark = f"{what}/{secrets.token_hex(8)}"
    until_s, pause_s = time.monotonic() + wait_s, 0.1
    while True:
        one = Held(store, mark, busy)
        if _is_alone(store, what, mark, lease_ns=_LEASE_NS):
            break
        if time.monotonic() >= until_s:
            raise HistoryBusy(busy)
        time.sleep(random.uniform(0, pause_s))  # noqa: S311 - no secret
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    try:
        yield one
    finally:
        one.leave()


def claim(store: Store, what: str, who: str, *, busy: str) -> None:
    """Have something for good, as one who has had it before.

    Raises:
        HistoryBusy: It is another one's.
        StoreUnreachable: The store cannot be asked.
    """
    for _ in range(3):
        if _is_alone(store, what, f"{what}/{who}", lease_ns=None):
            return
        time.sleep(random.uniform(0, 0.5))  # noqa: S311 - no secret
    raise HistoryBusy(busy)


def _is_alone(store: Store, what: str, mark: str, *, lease_ns: int | None) -> bool:
    """Whether there is no other mark, now that ours is there; else ours is gone again."""
    store.put(mark, b"1")
    found = {one.name: one.mtime_ns for one in store.objects(what)}
    ours_ns = found.pop(mark, 0)
    others = {
        name for name, at_ns in found.items() if lease_ns is None or at_ns > ours_ns - lease_ns
    }
    if others:
        store.remove([mark])
        return False
    store.remove(found)  # of those who were killed
    return True
