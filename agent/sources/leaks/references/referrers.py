"""Who refers to storages that somebody asks about.

Rules of this file: as in `watch`: runs in the training thread, at the ends of steps, a little at
each, and holds nothing; the search itself is that of `holders`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from .....safety.guard import Guard
from ....on_demand.armed_job import ArmedJob
from ...shared.recording import Recording
from ...storage.bounded.sights import Limits
from ...storage.storages import storages_now
from .holders import Holder, HolderSearch, Sought
from .tensors_over import tensors_over

_HOLD_NS = 20_000_000
_SEARCH_NS = 20 * 1_000_000_000
_GRAPHS_S = 0.2
"""Of the way through autograd's graphs, for what nothing in Python is over."""
_HASTY = "not all graphs were searched, for want of time: ask for fewer tensors with -n"
_CUT = (
    "not everything was searched: a little is at the end of each step, and after 20 s that ended;"
    " ask for fewer tensors with -n"
)


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

    def sought(self) -> Sought:
        """What is to be looked for."""
        return Sought(() if self.device is None else ((self.device, self.address),), self.tensor_id)


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
        self._left_out = 0
        self.guard = Guard("referrers", self.end)

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        if not self._longest_ns:
            return ()
        notes = [f"the training was held for at most {self._longest_ns * 1e-6:.0f} ms at a time"]
        if self._is_cut:
            notes.append(_CUT)
        if self._search is not None and self._search.is_hasty:
            notes.append(_HASTY)
        if self._left_out:
            notes.append(
                f"{self._left_out:,} tensors, the oldest, were left out, for want of time: what is"
                " said to be gone, and what nobody is known to refer to, may be one of them"
            )
        return tuple(notes)

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
        over = tensors_over(self._addresses)
        self._left_out = over.left_out
        ids = {place: [id(tensor) for tensor in own] for place, own in over.by_place.items()}
        there = {at: (device, size) for (device, at), size in over.sizes.items()}
        if there.keys() != self._addresses:
            there.update(self._others())
        for at in sorted(self._addresses):
            device, size = there.get(at, (None, None))
            own: list[int | None] = [] if device is None else [*ids.get((device, at), [])]
            self.sought += [Asked(at, device, size, one) for one in own or [None]]
        self._search = HolderSearch(self._recording, [one.sought() for one in self.sought])
        self._ends_ns = time.perf_counter_ns() + _SEARCH_NS
        self.state = "armed"

    def _others(self) -> dict[int, tuple[str, int]]:
        """What is there of which the collector knows no tensor: in a graph, or out of its sight."""
        limits = Limits(_GRAPHS_S, 0.0)  # without the tensors of no purpose, which it knows
        return {
            one.address: (one.device, one.bytes)
            for one in storages_now(self._recording, limits=limits)
            if one.address in self._addresses
        }

    def _advance(self, search: HolderSearch, start: int) -> None:
        """Look for a moment."""
        now = start
        search.renew()
        while not search.is_done and now - start < _HOLD_NS:
            search.advance()
            now = time.perf_counter_ns()
        if search.is_done or now > self._ends_ns:
            self._is_cut = not search.is_done
            self._left_out = max(self._left_out, search.left_out)
            self.holders = search.holders()
            self.found, self.done = len(self.sought), 1
            self.end()
