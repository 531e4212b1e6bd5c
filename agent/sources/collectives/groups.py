"""The process groups of this rank: their names, ranks and counts, and their rows.

Rules of this file: holds a group by weak reference only. Runs in the training threads.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from typing import Any

from ....ring.format import DONE, NULL_FLOAT
from ....ring.writer import Names, RingWriter
from ....safety.guard import Guard, pass_on
from ..torch_types import ProcessGroup

_LONGEST_LIST = 900
"""Bytes of a list of ranks beyond which ranges are written: a name is cut soon after."""


class Group:
    """One process group.

    Attributes:
        name_id: The number of its name.
        ranks: Its ranks as they are counted in the job, in the order of the group.
        count: Collectives that this rank has begun in it, also before it was met.
        sent: Messages to each rank.
        received: Messages from each rank.
        backend_count: What the backend has counted when a step last ended.
        seen: What had been recorded then.
        counted: What the backend has counted at the most of what was recorded.
        facts: By method, what its calls with these tensors have in common; see `hot_path`.
        is_counted: Whether the counts are those of before the first call that was recorded.
        is_whole: Whether all that were begun in it have been counted here.
    """

    __slots__ = (
        "__weakref__",
        "backend_count",
        "count",
        "counted",
        "facts",
        "is_counted",
        "is_whole",
        "name_id",
        "ranks",
        "received",
        "seen",
        "sent",
        "size",
        "torch_group",
    )

    def __init__(self, torch_group: weakref.ref[Any], name_id: int, ranks: list[int]) -> None:
        self.torch_group = torch_group
        self.name_id = name_id
        self.ranks = ranks
        self.size = len(ranks)
        self.count = self.counted = self.seen = _begun_in(torch_group())
        self.is_counted = self.is_whole = False
        self.backend_count: int | None = None
        self.facts: dict[str, dict[Any, Any]] = {}
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}

    def count_from_here(self) -> None:
        """A call is about to be recorded; at the first, what the backend has counted until now.

        In the thread that calls, where nothing else is being begun: while the agent came and met
        the group, the program went on, and has begun some that nobody has recorded.
        """
        if not self.is_counted:
            self.is_counted = True
            begun = _begun_in(self.torch_group())
            self.seen += begun - self.counted
            self.count = self.counted = begun
            self.is_whole = begun == 0

    def has_unseen(self) -> bool:
        """Whether the backend has counted more since the last question than was recorded."""
        torch_group = self.torch_group()
        if torch_group is None:
            return False
        counted, seen = _counted_in(torch_group), self.counted
        if counted is None:
            return False
        before, had = self.backend_count, self.seen
        self.backend_count, self.seen = counted, seen
        return before is not None and counted - before > seen - had


class Groups:
    """All that were met.

    Attributes:
        by_id: By ``id(group)``, those that are still there.
    """

    def __init__(self, ring: RingWriter, names: Names, guard: Guard) -> None:
        self._ring = ring
        self._names = names
        self._guard = guard
        self.by_id: dict[int, Group] = {}

    def of(self, torch_group: ProcessGroup) -> Group:
        """What is known of a group; a new one gets its row."""
        found = self.by_id.get(id(torch_group))
        return self._meet(torch_group) if found is None else found

    def meet_all(self) -> None:
        """Meet the groups that this rank is in."""
        world = sys.modules["torch.distributed.distributed_c10d"]._world
        for torch_group in list(world.pg_map):
            self.of(torch_group)

    def count_anew(self) -> None:
        """Meet all groups once more: some collectives have passed that nobody has recorded.

        What is recorded from here on has the backend's numbers again, and belongs to a new row.
        """
        for old in self.all():
            torch_group = old.torch_group()
            if torch_group is not None and old.is_counted:
                found = self._meet(torch_group)
                found.sent, found.received = old.sent, old.received

    def all(self) -> list[Group]:
        """Those that were met and are still there."""
        return list(self.by_id.values())

    def _meet(self, torch_group: ProcessGroup) -> Group:
        number = id(torch_group)

        def forget(_: object) -> None:
            self.by_id.pop(number, None)

        name = _name_of(torch_group)
        ranks = _ranks_of(torch_group)
        name_id = self._names.intern(name)
        # What it raises, Python would print in the program's name.
        guarded = functools.partial(self._guard.run, forget)
        found = Group(weakref.ref(torch_group, guarded), name_id, ranks)
        self.by_id[number] = found
        opening = {
            "process_group": name_id,
            "description": self._text(_told(torch_group, "group_desc")),
            "backend": self._text(_backend_of(torch_group)),
            "size": len(ranks),
            "group_rank": torch_group.rank(),
            "ranks": self._names.intern(_written(ranks)),
            "timeout_s": _timeout_of(torch_group),
            "created_ns": time.perf_counter_ns(),
        }
        word = self._ring.open_named(opening)
        self._ring.close_row(word, DONE)
        return found

    def _text(self, text: str | None) -> int:
        """The number of a text; that of NULL for none."""
        return self._names.intern(text) if text and text != "undefined" else 0


def _name_of(torch_group: ProcessGroup) -> str:
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    named = world.pg_names.get(torch_group)
    return str(named if named is not None else _told(torch_group, "group_name") or "?")


def _told(torch_group: ProcessGroup, what: str) -> str | None:
    """What a group says of itself; torch raises where nobody has given it that."""
    try:
        return getattr(torch_group, what, None)
    except RuntimeError:
        pass_on()
        return None


def _ranks_of(torch_group: ProcessGroup) -> list[int]:
    """Its ranks in the job, in the order of the group."""
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    ranks = world.pg_group_ranks.get(torch_group) or {}
    by_place = sorted((place, rank) for rank, place in ranks.items())
    return [rank for _, rank in by_place] or list(range(torch_group.size()))


def _begun_in(torch_group: Any) -> int:
    """What the backend has counted in a group: not none, where the agent came later.

    With numbers of their own, ranks that the agent came to one after the other would not agree.
    """
    return _counted_in(torch_group) or 0


def _counted_in(torch_group: Any) -> int | None:
    """The same; None of a backend that does not count."""
    try:
        return int(torch_group._get_sequence_number_for_group())
    except (AttributeError, RuntimeError):
        pass_on()
        return None


def _backend_of(torch_group: ProcessGroup) -> str | None:
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    found = world.pg_map.get(torch_group)
    return str(found[0]) if found else None


def _timeout_of(torch_group: ProcessGroup) -> float:
    """After how many seconds torch gives up."""
    try:
        (device, *_) = torch_group._device_types
        seconds: float = torch_group._get_backend(device).options._timeout.total_seconds()
    except (AttributeError, RuntimeError, ValueError):
        pass_on()
        return NULL_FLOAT
    return seconds


def _written(ranks: list[int]) -> str:
    text = ",".join(map(str, ranks))
    if len(text) <= _LONGEST_LIST:
        return text
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
