"""In which step storages came, and which line of the program made them, so far as it was seen.

Rules of this file: a storage is told from another one at its place by a weak reference of torch's
own, which keeps its few bytes of bookkeeping and none of its memory; they are let go of as soon as
somebody looks again. What has not been seen to come has no age.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..shared.recording import Recording
    from .bounded.sights import Birth, Head


_IDENTITY = attrgetter("_cdata")


class _Born:
    """What is known of one storage.

    Attributes:
        step: The step in which it came; None where it was there before.
    """

    __slots__ = ("address", "frame", "step")

    def __init__(self, address: int, step: int | None) -> None:
        self.address = address
        self.step = step
        self.frame: str | None = None


class Births:
    """The storages that were seen to come.

    Attributes:
        left_out: Those that a look had no time for, by identity. The looks after it leave them out,
            too, until nobody looks any more: they would seem to have come since.
    """

    def __init__(self) -> None:
        self.left_out: set[int] = set()
        self._known: dict[int, _Born] = {}
        self._lock = threading.Lock()
        self._watching = 0

    def __len__(self) -> int:
        """How many are kept in mind."""
        return len(self._known)

    def begin(self) -> None:
        """Somebody looks several times: what is there now is to be known at the next look."""
        self._watching += 1
        self._forget_the_dead()

    def end(self) -> None:
        """He looks no more; what nothing is known of is let go of."""
        self._watching -= 1
        if not self._watching:
            with self._lock:
                self._let_in_all()
        self._forget_the_dead()
        if not self._watching:
            with self._lock:
                known = self._known.items()
                self._drop([key for key, born in known if born.step is None])

    def sighting(self, step: int | None) -> Sighting:
        """What is to be told of the storages at a moment.

        Args:
            step: The step in which those have come that were not there at the moment before; None
                where nobody looked then.
        """
        return Sighting(self, step)

    def noted(self, places: Iterable[int], own: Sequence[Any], step: int | None) -> list[Birth]:
        """Take note of storages; returns what is known of each."""
        identities = list(map(_IDENTITY, own))
        with self._lock:
            new = dict(zip(identities, own, strict=True))
            if len(new) == len(own) and self._known.keys().isdisjoint(new):
                _hold(own)
                borns = map(_Born, places, repeat(step))
                self._known.update(zip(identities, borns, strict=False))
                return list(zip(identities, repeat(step), repeat(None), strict=False))
            known = map(self._noted, identities, places, own, repeat(step))
            return [
                (key, born.step, born.frame) for key, born in zip(identities, known, strict=False)
            ]

    def _noted(self, key: int, address: int, own: Any, step: int | None) -> _Born:
        born = self._known.get(key)
        if born is None:
            own._weak_ref()
            born = self._known[key] = _Born(address, step)
        elif born.address != address:  # it was given other memory
            born.address, born.step, born.frame = address, step, None
        return born

    def leave_out(self, own: Sequence[Any], seen: Collection[int]) -> None:
        """Have no look take note of some storages, while anybody looks, but for those just seen."""
        identities = list(map(_IDENTITY, own))
        with self._lock:
            if self.left_out.issuperset(identities):
                return
            new = dict(zip(identities, own, strict=True))
            for key in (new.keys() & seen) | (new.keys() & self.left_out):
                del new[key]
            _hold(new.values())
            self.left_out.update(new)

    def learn(self, frames: Mapping[int, str], identities: Mapping[int, int]) -> None:
        """Say which lines made some storages.

        Args:
            frames: By address, what made the memory there.
            identities: By address, the identity of the storage that was there then.
        """
        with self._lock:
            for address, identity in identities.items():
                born, frame = self._known.get(identity), frames.get(address)
                if born is not None and frame is not None and born.address == address:
                    born.frame = frame

    def gone(self) -> int:
        """How many of those that are left out are gone."""
        with self._lock:
            return sum(map(_storage_class()._expired, self.left_out))

    def _forget_the_dead(self) -> None:
        """Let go of storages that are gone."""
        expired = _storage_class()._expired
        with self._lock:
            self._drop([key for key in self._known if expired(key)])
            dead = list(filter(expired, self.left_out))
            self.left_out.difference_update(dead)
            _free(dead)

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            self._drop(list(self._known))
            self._let_in_all()

    def _drop(self, keys: list[int]) -> None:
        for key in keys:
            del self._known[key]
        _free(keys)

    def _let_in_all(self) -> None:
        keys = list(self.left_out)
        self.left_out.clear()
        _free(keys)


class Sighting:
    """A `Sight` of the storages at one moment."""

    def __init__(self, births: Births, step: int | None) -> None:
        self._births, self._step = births, step

    @property
    def left_out(self) -> Collection[int]:
        """See `Sight`."""
        return self._births.left_out

    def see(self, heads: Sequence[Head], own: Sequence[Any]) -> list[Birth]:
        """See `Sight`."""
        return self._births.noted(map(itemgetter(0), heads), own, self._step)

    def leave_out(self, own: Sequence[Any], seen: Collection[int]) -> None:
        """See `Sight`."""
        self._births.leave_out(own, seen)


def births_of(recording: Recording) -> Births:
    """What is known of births in a process; made when first asked for."""
    births = recording.looks.births
    if not isinstance(births, Births):
        births = recording.looks.births = Births()
    return births


def _hold(own: Iterable[Any]) -> None:
    """Keep the bookkeeping of storages, so that no other gets its place."""
    deque(map(_storage_class()._weak_ref, own), maxlen=0)


def _free(keys: Iterable[int]) -> None:
    """Let go of what `_hold` keeps."""
    deque(map(_storage_class()._free_weak_ref, keys), maxlen=0)


def _storage_class() -> Any:
    return sys.modules["torch"].UntypedStorage
