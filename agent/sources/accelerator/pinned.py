"""Numbers on their way from a device, by way of memory that the device can write to.

Rules of this file: memory of that kind is taken from the driver once, for many numbers: to have it
made may wait for the device. A place in it is used again once the device has written what it was to
write there, and nobody wants that any more. Torch's objects for a place take 1.5 KB: so they are
made by the piece, where the places there are do not suffice.
"""

from __future__ import annotations

import sys
from collections import deque
from types import ModuleType
from typing import Any

from ..torch_types import Tensor
from .api import device_api
from .marks import EventMark, Marks
from .owned import Owned, pool_of
from .seam import PinnedMemory

_PLACES = 512
_PIECES = 8
"""How often there are so many: of a device that is late, more numbers than that are not brought."""
_WIDTH = 8
_MOST_VECTORS = 32


class Pending:
    """Numbers in a place, and the mark behind the work that writes them."""

    __slots__ = ("_mark", "_place", "_places", "_seen")

    def __init__(self, places: deque[Any], place: Any, seen: Any, mark: EventMark) -> None:
        self._places = places
        self._place = place
        self._seen = seen
        self._mark: EventMark | None = mark

    def is_here(self) -> bool:
        """See `PendingNumber`."""
        mark = self._mark  # another thread may see it come meanwhile
        if mark is not None and mark.is_here():
            self._mark = mark = None  # its event is free for the next
        return mark is None

    def value(self) -> float:
        """See `PendingNumber`."""
        return float(self._seen.item())

    def values(self) -> list[float]:
        """See `PendingNumbers`."""
        numbers: list[float] = self._seen.tolist()
        return numbers

    def __del__(self) -> None:
        self._places.append((self._place, self._mark))


class Pinned:
    """The memory of one device's numbers."""

    def __init__(self, owned: Owned, marks: Marks, key: object) -> None:
        """Prepare.

        Args:
            key: Tells the device's memory from that of others.
        """
        self._owned = owned
        self._marks = marks
        # Its places, and pieces of the same memory that are none so far.
        self._single: list[deque[Any]] = pool_of(("single", key), list)
        self._vectors: dict[tuple[Any, int], deque[Any]] = pool_of(("vectors", key), dict)
        # Places as so many numbers of a type, by identity; each is kept, so that no other has it.
        self._seen: dict[tuple[int, Any, int], tuple[Any, Any]] = {}

    def bring(self, torch: ModuleType, tensor: Tensor) -> Pending | None:
        """Have the numbers of a tensor brought; None where too many are on their way.

        Raises:
            RuntimeError: There is no such memory, or the device has failed.
        """
        if not self._marks.has_room(tensor.device.index):  # nor would it be known when it is here
            return None
        plain = tensor.detach().reshape(-1)  # of what is detached, nothing is kept for gradients
        places = self._places(torch, plain)
        found = _free_of(places) or (self._more(places) and _free_of(places))
        if not found:
            return None
        place, before = found
        try:
            seen = self._seen_at(place, plain)
            seen.copy_(plain, non_blocking=True)
            mark = self._marks.set(device_api(), tensor.device.index)
        except RuntimeError:
            places.append((place, before))
            raise
        if mark is None:  # so it is not known when the place can be used again
            return None
        return Pending(places, place, seen, mark)

    def _more(self, places: deque[Any]) -> bool:
        """Make more places of the memory that there is; whether there were more to be made."""
        if len(self._single) == 1 or places is not self._single[0]:  # as an older agent has left it
            return False
        try:
            piece = self._single[1].popleft()
        except IndexError:  # it is all in use
            return False
        places.extendleft((place, None) for place in piece.split(_WIDTH))
        return True

    def _seen_at(self, place: Any, plain: Any) -> Any:
        """A place as what it holds next: made once, for torch takes a while for it."""
        size: int = plain.nbytes
        key = id(place), plain.dtype, size
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = place, place[:size].view(plain.dtype)
        return found[1]

    def _places(self, torch: ModuleType, plain: Any) -> deque[Any]:
        """The places for such numbers, the one that was used longest ago first."""
        if plain.nbytes <= _WIDTH:
            if not self._single:
                slab = self._make(torch, _PIECES * _PLACES * _WIDTH)
                first, *more = slab.split(_PLACES * _WIDTH)
                self._single.append(deque((place, None) for place in first.split(_WIDTH)))
                self._single.append(deque(more))
            return self._single[0]
        key = plain.dtype, plain.nbytes
        if key not in self._vectors:
            if len(self._vectors) >= _MOST_VECTORS:
                return deque()
            made = [self._make(torch, plain.nbytes) for _ in range(2)]
            self._vectors[key] = deque((place, None) for place in made)
        return self._vectors[key]

    def _make(self, torch: ModuleType, size: int) -> Any:
        """Memory that the device can write to."""
        made = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
        self._owned.keep(made)
        return made


def _free_of(places: deque[Any]) -> tuple[Any, Any] | None:
    """The place that was used longest ago, and the mark before it; None where that is in use."""
    try:
        place, before = places.popleft()
    except IndexError:
        return None
    if before is None or before.is_here():
        return place, before
    places.appendleft((place, before))
    return None


def pinned_by_torch() -> PinnedMemory | None:
    """What torch has pinned for devices; None while none is in use, or where nothing tells it.

    Asks the allocator, not the driver.
    """
    api = device_api()
    ask = getattr(api, "host_memory_stats_as_nested_dict", None)
    told = ask() if ask is not None and api.is_initialized() else {}
    # Torch has changed the names: there were no "active" bytes, and those allocated were these.
    has_active = "active_bytes" in told
    of_all, in_use = ("allocated", "active") if has_active else ("reserved", "allocated")
    if not {f"{of_all}_bytes", f"{in_use}_bytes"} <= told.keys():
        return None
    pieces = told.get("allocations" if has_active else "segment", {}).get("current")
    size, used = (told[f"{name}_bytes"]["current"] for name in (of_all, in_use))
    # Before 2.13, torch counted what was handed out again, but not (or as -1 byte) what came
    # back: that figure only grew.
    is_right = sys.modules["torch"].__version__ >= (2, 13) and used <= size
    return PinnedMemory(size, used if is_right else None, pieces)
