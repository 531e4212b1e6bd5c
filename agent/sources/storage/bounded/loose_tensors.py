"""The tensors of which nobody has said what they are for, however many a program keeps.

Rules of this file: runs while the training stands still. Each fact is read of many tensors by one
call of C code; those that are of no class of torch's own, or have no memory, are left to whoever
looks at tensors one by one. No data is read, and no code of a subclass runs.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import attrgetter, not_
from typing import Any

from ...model.tensor_facts import name_of
from ...torch_types import Tensor
from ..quantized import is_small, numbers_in
from ..tensor_parts import REFUSALS, device_name
from .sights import Head, Limits, Sight

Claim = Callable[[Tensor], None]
Place = tuple[str, int]
"""The device of a storage, and where it begins."""
_IS_NO_ADAPTER = False
_LOT = 2048
"""Tensors between two looks at the clock."""
IDENTITY = attrgetter("_cdata")
_known_name = functools.lru_cache(maxsize=256)(name_of)


class LooseTensors:
    """The storages of such tensors.

    Attributes:
        over: By storage, a tensor over it: the oldest that was listed.
        counts: How many were.
        own: What torch has of it.
        sizes: Its bytes.
    """

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        self._tensor, self._storage = torch.Tensor, torch.UntypedStorage
        self._plain = {torch.Tensor, torch.nn.Parameter}
        self.over: dict[Place, Any] = {}
        self.counts: Counter[Place] = Counter()
        self.own: dict[Place, Any] = {}
        self.sizes: dict[Place, int] = {}

    def list_all(self, tensors: Sequence[Tensor], claim: Claim) -> None:
        """List all tensors.

        Args:
            claim: Takes one that is unlike the others.
        """
        for lot in lots(tensors):
            self._list(lot, (), claim)

    def list_newest(
        self, tensors: Sequence[Tensor], claim: Claim, limits: Limits, left_out: Collection[int]
    ) -> Sequence[Tensor]:
        """List the last tensors, as far as there is time; returns the others.

        Args:
            claim: Takes one that is unlike the others.
            left_out: The identities of storages that are not to be told of.
        """
        limits.begin_listing()
        rest = len(tensors)
        for lot in lots(tensors):
            limits.left_out += len(lot) - self._list(lot, left_out, claim)
            rest -= len(lot)
            if limits.is_over():
                break
        limits.left_out += rest
        return tensors[:rest]

    def take(self, place: Place) -> tuple[Any, int, int]:
        """A storage that is told of elsewhere: the tensor over it, their number, and its bytes."""
        del self.own[place]
        return self.over.pop(place), self.counts.pop(place), self.sizes.pop(place)

    def heads(self) -> list[Head]:
        """What is known of each storage."""
        over = list(self.over.values())
        names = list(map(_known_name, map(self._tensor.dtype.__get__, over)))
        numbers: Iterable[int | None] = repeat(None)
        if any(map(is_small, set(names))):
            numbers = list(map(numbers_in, over, over, self.sizes.values()))
        addresses = [address for _, address in self.over]
        devices = [device for device, _ in self.over]
        requires = map(self._tensor.requires_grad.__get__, over)
        return list(
            zip(
                *(addresses, devices, self.sizes.values(), names, self._shapes(over)),
                *(repeat("other"), repeat(None), repeat(None), requires, self.counts.values()),
                *(repeat(None), map(id, over), numbers, repeat(_IS_NO_ADAPTER)),
                strict=False,
            )
        )

    def _list(self, lot: list[Tensor], left_out: Collection[int], claim: Claim) -> int:
        """List some tensors; returns how many, without those that are left out."""
        try:
            return self._list_plain(lot, left_out)
        except REFUSALS:
            return sum(self._list_one(tensor, left_out, claim) for tensor in lot)

    def _list_one(self, tensor: Tensor, left_out: Collection[int], claim: Claim) -> int:
        try:
            return self._list_plain([tensor], left_out)
        except REFUSALS:
            claim(tensor)
            return 1

    def _list_plain(self, lot: list[Any], left_out: Collection[int]) -> int:
        """List tensors that are alike.

        Raises:
            TypeError: One is of another class.
            ValueError: One has no memory.
            RuntimeError: One has no storage.
        """
        if not self._plain.issuperset(map(type, lot)):
            raise TypeError
        own = list(map(self._tensor.untyped_storage, lot))
        if left_out:
            is_wanted = list(map(not_, map(left_out.__contains__, map(IDENTITY, own))))
            lot, own = list(compress(lot, is_wanted)), list(compress(own, is_wanted))
        addresses = list(map(self._storage.data_ptr, own))
        sizes = list(map(self._storage.nbytes, own))
        if not (all(addresses) and all(sizes)):
            raise ValueError
        places = list(zip(self._devices(lot), addresses, strict=False))
        self.counts.update(places)
        self.over.update(zip(places, lot, strict=True))
        self.own.update(zip(places, own, strict=True))
        self._note_sizes(places, sizes)
        return len(lot)

    def _note_sizes(self, places: list[Place], sizes: list[int]) -> None:
        """Note the bytes of storages; what lies at one place may have several, of several sizes."""
        known = self.sizes
        if len(known) + len(places) == len(self.counts):  # each of them is there once
            known.update(zip(places, sizes, strict=True))
            return
        for place, size in zip(places, sizes, strict=True):
            if known.setdefault(place, size) < size:
                known[place] = size

    def _shapes(self, tensors: list[Tensor]) -> list[tuple[int, ...]]:
        try:
            return list(map(tuple, map(self._tensor.shape.__get__, tensors)))
        except RuntimeError:  # one of them is nested
            return list(map(shape_of, tensors))

    def _devices(self, lot: list[Tensor]) -> Iterable[str]:
        if all(map(self._tensor.is_cpu.__get__, lot)):
            return repeat("cpu")
        return map(device_name, map(self._tensor.device.__get__, lot))


def leave_out(tensors: Sequence[Tensor], sight: Sight, seen: Iterable[Any]) -> None:
    """Have the storages of tensors left out by the looks that follow, too.

    Args:
        seen: The storages that this look has told of.
    """
    identities = set(map(IDENTITY, seen))
    storage_of = sys.modules["torch"].Tensor.untyped_storage
    for lot in lots(tensors):
        try:
            sight.leave_out(list(map(storage_of, lot)), identities)
        except REFUSALS:
            sight.leave_out(list(_storages(lot)), identities)


def _storages(lot: Iterable[Any]) -> Iterator[Any]:
    for tensor in lot:
        try:
            yield tensor.untyped_storage()
        except REFUSALS:  # of which the looks that follow may tell
            continue


def lots(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Some tensors after others, the last first."""
    for end in range(len(tensors), 0, -_LOT):
        yield list(reversed(tensors[max(end - _LOT, 0) : end]))


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's sizes; none of one that has no common ones, such as a nested one."""
    try:
        return tuple([int(size) for size in tensor.shape])
    except (AttributeError, RuntimeError):
        return ()
