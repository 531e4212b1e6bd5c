"""In which step storages came, and which line of the program made them, so far as it was seen.

Rules of this file: a storage is told from another one at its place by a weak reference of torch's
own, which keeps its few bytes of bookkeeping and none of its memory; they are let go of as soon as
somebody looks again. What has not been seen to come has no age.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..torch_types import Tensor

if TYPE_CHECKING:
    from ..shared.recording import Recording
    from .storages import Sight, Storage


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
    """The storages that were seen to come."""

    def __init__(self) -> None:
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
        self._forget_the_dead()
        if not self._watching:
            with self._lock:
                known = self._known.items()
                self._drop([key for key, born in known if born.step is None])

    def sighting(self, step: int | None) -> Sight:
        """What is to be called with each storage at a moment.

        Args:
            step: The step in which those have come that were not there at the moment before; None
                where nobody looked then.
        """
        known, lock = self._known, self._lock

        def sight(storage: Storage, tensor: Tensor) -> Storage:
            own = tensor.untyped_storage()
            key = own._cdata
            with lock:
                born = known.get(key)
                if born is None:
                    own._weak_ref()
                    born = known[key] = _Born(storage.address, step)
                elif born.address != storage.address:  # it was given other memory
                    born.address, born.step, born.frame = storage.address, step, None
                return storage._replace(identity=key, born=born.step, frame=born.frame)

        return sight

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

    def _forget_the_dead(self) -> None:
        """Let go of storages that are gone."""
        expired = _storage_class()._expired
        with self._lock:
            self._drop([key for key in self._known if expired(key)])

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            self._drop(list(self._known))

    def _drop(self, keys: Iterable[int]) -> None:
        let_go = _storage_class()._free_weak_ref
        for key in keys:
            del self._known[key]
            let_go(key)


def births_of(recording: Recording) -> Births:
    """What is known of births in a process; made when first asked for."""
    births = recording.looks.births
    if not isinstance(births, Births):
        births = recording.looks.births = Births()
    return births


def _storage_class() -> Any:
    return sys.modules["torch"].UntypedStorage
