"""Who refers to storages that somebody asks about.

Rules of this file: as in `watch`: runs in the training thread, at the ends of steps, a little at
each, and holds nothing; the search itself is that of `holders`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ...armed_job import ArmedJob
from ...guard import Guard
from ..steps.recording import Recording
from ..storage.living import living
from ..storage.saved_tensors import saved_tensors
from ..storage.storages import storages_now
from ..storage.tensor_parts import parts_of
from .holders import Holder, HolderSearch

_HOLD_NS = 20_000_000
_SEARCH_NS = 20 * 1_000_000_000
_CUT = (
    "not everything was searched: a little is at the end of each step, and after 20 s that ended;"
    " ask for fewer tensors with --top"
)
_MOST_TENSORS = 8
"""How many tensors over one storage are looked at."""
_MOST_SAVED = 50_000

Place = tuple[str, int]


class Asked(NamedTuple):
    """One tensor over a storage that was asked about.

    Attributes:
        device: None of a storage that is gone.
        bytes: What is there; None of a storage that is gone.
        tensor_id: None where Python has no tensor over it.
    """

    address: int
    device: str | None
    bytes: int | None
    tensor_id: int | None

    @property
    def tensor_ids(self) -> list[int]:
        """See `Sought`."""
        return [] if self.tensor_id is None else [self.tensor_id]

    @property
    def addresses(self) -> set[Place]:
        """See `Sought`."""
        return set() if self.device is None else {(self.device, self.address)}


class ReferrerSearch(ArmedJob):
    """Looks for who refers to some storages.

    Attributes:
        sought: What was found at the addresses, once that is known.
        holders: Who refers to it, in the same order, once that is known.
    """

    what = "referrers"

    def __init__(self, recording: Recording, addresses: Iterable[int], number: int) -> None:
        super().__init__(number)
        self.sought: list[Asked] = []
        self.holders: list[Holder] = []
        self._addresses = frozenset(addresses)
        self._recording = recording
        self._search: HolderSearch | None = None
        self._ends_ns = self._longest_ns = 0
        self._is_cut = False
        self.guard = Guard("referrers", self.end)

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        if not self._longest_ns:
            return ()
        held = f"the training was held for at most {self._longest_ns * 1e-6:.0f} ms at a time"
        return (held, _CUT) if self._is_cut else (held,)

    def _work(self) -> None:
        """Begin, or look further."""
        start = time.perf_counter_ns()
        if self._search is None:
            self._begin()
        else:
            self._advance(self._search, start)
        self._longest_ns = max(self._longest_ns, time.perf_counter_ns() - start)

    def _let_go(self) -> None:
        """Keep only what was found."""
        if self._search is not None:
            self._search.close()

    def _begin(self) -> None:
        """Find the tensors over each storage, and those whose graphs keep the others."""
        self.saw(self._recording.step - 1)
        there = {
            one.address: (one.device, one.bytes)
            for one in storages_now(self._recording)
            if one.address in self._addresses
        }
        over, of_graphs = _tensors_over({(device, at) for at, (device, _) in there.items()})
        for at in sorted(self._addresses):
            device, size = there.get(at, (None, None))
            ids: list[int | None] = [] if device is None else [*over.get((device, at), [])]
            self.sought += [Asked(at, device, size, one) for one in ids or [None]]
        graphs = [_Graph([one]) for one in of_graphs]
        self._search = HolderSearch(self._recording, [*self.sought, *graphs])
        self._ends_ns = time.perf_counter_ns() + _SEARCH_NS
        self.state = "armed"

    def _advance(self, search: HolderSearch, start: int) -> None:
        """Look for a moment."""
        now = start
        search.renew()
        while not search.is_done and now - start < _HOLD_NS:
            search.advance()
            now = time.perf_counter_ns()
        if search.is_done or now > self._ends_ns:
            self._is_cut = not search.is_done
            self.holders = search.holders()[: len(self.sought)]
            self.found, self.done = len(self.sought), 1
            self.end()


class _Graph(NamedTuple):
    """A tensor whose graph keeps what is sought."""

    tensor_ids: list[int]

    @property
    def addresses(self) -> set[Place]:
        """See `Sought`: it is not sought itself."""
        return set()


def _tensors_over(places: set[Place]) -> tuple[dict[Place, list[int]], list[int]]:
    """The `id` of the tensors over each storage, and of those whose graphs keep one of the rest."""
    torch: Any = sys.modules["torch"]
    found: dict[Place, list[int]] = {}
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        tensors = living((torch.Tensor,))[0]
        for tensor in tensors:
            for part in parts_of(tensor):
                place = (part.device, part.address)
                if place in places and len(own := found.setdefault(place, [])) < _MOST_TENSORS:
                    own.append(id(tensor))
        return found, _owners(tensors, places - found.keys())


def _owners(tensors: Sequence[Any], places: set[Place]) -> list[int]:
    """The tensors whose graphs keep some storages."""
    owners: list[int] = []
    seen = 0
    for tensor in tensors:
        if not places or seen > _MOST_SAVED:
            break
        if tensor.grad_fn is None:
            continue
        kept: set[Place] = set()
        for saved in islice(saved_tensors([tensor.grad_fn]), _MOST_SAVED):
            seen += 1
            kept |= places.intersection((p.device, p.address) for p in parts_of(saved.tensor))
        if kept:
            places = places - kept
            owners.append(id(tensor))
    return owners
