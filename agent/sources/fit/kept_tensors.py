"""What is in memory beside model, optimizers and batch as a step begins, and how long it stays.

Rules of this file: runs in the training thread, on request. Holds no memory of any tensor: a weak
reference of torch's own tells whether a storage is still there, and is let go of at the end, by
whichever thread ends it. One that is let go of twice would free a storage that is in use.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from ..shared.gradients import gradients_there
from ..shared.recording import Recording
from ..storage.bounded.sights import Birth, Head
from ..storage.storages import storages_now
from ..storage.tensor_parts import parts_of
from ..torch_types import Module, Tensor
from .plain_copies import things_in

Place = tuple[str, int]


class Kept(NamedTuple):
    """A storage that is there as a model is called, and is none of what a copy has.

    Attributes:
        place: Where it lies.
        lasts: Whether it was there as the model was called before, too: it does not grow with the
            batch. What a variable keeps of the last step does.
        until: The phase in which it was last there.
    """

    place: Place
    bytes: int
    lasts: bool
    until: str


class _Keeping:
    """A `Sight` that calls something with each storage: its place, its bytes and torch's object."""

    left_out: Collection[int] = frozenset()

    def __init__(self, keep: Callable[[Place, int, Any], None]) -> None:
        self._keep = keep

    def see(self, heads: Sequence[Head], own: Sequence[Any]) -> list[Birth]:
        """See `Sight`."""
        for head, one in zip(heads, own, strict=True):
            self._keep((head[1], head[0]), head[2], one)
        return [(None, None, None)] * len(heads)

    def leave_out(self, own: Sequence[Any], seen: Collection[int]) -> None:
        """See `Sight`; all tensors are looked at."""


class KeptTensors:
    """Notes what is there at each call of a model, and what of it has gone later.

    Attributes:
        calls: How many calls there were: from the second on it is known what lasts.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._storage_class: Any = sys.modules["torch"].UntypedStorage
        self.calls = 0
        self._earlier: set[int] = set()
        self._there: dict[int, Kept] = {}
        self._lock = threading.RLock()
        self._is_closed = False

    def called(self, root: Module, arguments: object) -> None:
        """A model is about to be called."""
        self.calls += 1
        torch: Any = sys.modules["torch"]
        device = str(next(iter(root.parameters())).device)
        known = self._known_places(root, arguments, torch)
        found: dict[int, Kept] = {}

        def keep(place: Place, size: int, own: Any) -> None:
            if place[0] == device and place not in known:
                key = own._cdata
                if key not in found:
                    own._weak_ref()
                found[key] = Kept(place, size, key in self._there, "forward")

        try:
            storages_now(self._recording, (), None, _Keeping(keep))
        finally:
            with self._lock:
                self._free(self._earlier)
                self._earlier, self._there = set(self._there), found
                if self._is_closed:
                    self.close()

    def entered(self, phase: str) -> None:
        """A later phase of the step begins: what is there now was there in all before it."""
        expired = self._storage_class._expired
        with self._lock:
            for key, kept in self._there.items():
                if not expired(key):
                    self._there[key] = kept._replace(until=phase)

    def is_of_loss(self, tensor: Tensor) -> None:
        """A tensor is what the loss compares with, which the copy makes itself."""
        torch: Any = sys.modules["torch"]
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            places = {(part.device, part.address) for part in parts_of(tensor)}
        with self._lock:
            for key, kept in self._there.items():
                if kept.place in places:
                    self._there[key] = kept._replace(bytes=0)

    def found(self) -> tuple[Kept, ...]:
        """What was there at the last call."""
        return tuple(self._there.values())

    def close(self) -> None:
        """Let go of the weak references, also of those of a call under way."""
        with self._lock:
            self._is_closed = True
            self._free(self._earlier)
            self._free(self._there)
            self._earlier, self._there = set(), {}

    def _free(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._storage_class._free_weak_ref(key)

    def _known_places(self, root: Module, arguments: object, torch: ModuleType) -> set[Place]:
        """Where all that is lies that a copy of the step has, too."""
        parameters = list(root.parameters())
        tensors = [*parameters, *root.buffers(), *things_in(arguments, torch.Tensor)]
        for optimizer in self._recording.objects.counted_optimizers():
            for group in optimizer.param_groups:
                parameters += group["params"]
            for state in list(optimizer.state.values()):
                tensors += things_in(state, torch.Tensor)
        tensors += gradients_there(parameters, self._recording)
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            return {
                (part.device, part.address)
                for tensor in (*tensors, *parameters)
                for part in parts_of(tensor)
            }
