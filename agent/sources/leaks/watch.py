"""Watches some steps for storages that come and never go.

Rules of this file: loaded only when somebody asks for it. Runs in the training thread, at the ends
of steps: there each storage that is alive is noted by what identifies it, and nothing is held. When
the steps are over, what refers to the storages that stayed is looked for, a little at each step's
end, so that the training never stands still for long.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ....messages.common import ArmRequest
from ....safety.guard import Guard
from ...on_demand.armed_job import ArmedJob
from ..accelerator import Accelerator
from ..numbers.nonfinite.finite_hooks import Hooks
from ..shared.recording import Recording
from ..storage.births import births_of
from ..storage.bounded.sights import Limits
from ..storage.saving_calls import SavingCalls
from ..storage.standing_survey import StandingSurvey
from ..storage.storages import Storage, storages_now
from ..storage.surveyor import surveyor_of
from .graph_pools import GraphPools, graph_pools_of
from .looks import Looks
from .other_growth import OtherGrowth, ProcessCounts
from .references.holders import Holder, HolderSearch, Sought
from .references.tensors_over import Place
from .stale_gradients import StaleGradients

LEAST_BIRTHS = 3
"""In so many steps, at least, storages of a kind must have come that stayed."""
_MOST_GROUPS = 12
_MOST_SEARCHED = 8
_HOLD_NS = 40_000_000
_LOOK_S = 0.2
_SEARCH_NS = 60 * 1_000_000_000
_FACTS = attrgetter("category", "module", "dtype", "shape", "device", "bytes")
_NUMBER = re.compile(r"\d+")

_PASSING = {"inputs", "activations", "temporary", "other"}
"""Categories between which a storage moves: an input of a step is an activation of it later."""


class Kind(NamedTuple):
    """What storages have in common that are told apart by nothing else.

    Attributes:
        lasting: Their category, where it is one that a storage keeps.
    """

    lasting: str | None
    module: str | None
    dtype: str
    shape: tuple[int, ...]
    device: str


class Part(NamedTuple):
    """What storages have in common that are added up together."""

    category: str
    module: str | None
    dtype: str
    device: str


class StepCount(NamedTuple):
    """What was in memory as a step ended.

    Attributes:
        categories: By category, how many storages and how many bytes.
        newest_hook: The code of the hook that was registered last; None where there is none.
    """

    step: int
    categories: dict[str, tuple[int, int]]
    modules: int
    hooks: int
    newest_hook: Holder | None
    stale_gradients: bool | None
    graph_pools: GraphPools
    process: ProcessCounts
    cost_ns: int


class Kept(NamedTuple):
    """Storages of one kind that came in the watched steps and stayed.

    Attributes:
        category: That of most of them.
        births: The step in which each came, in order.
        was_input: Whether some were given to a model, or came from a data loader.
        first: What was there of the kind before the watched steps: number and bytes.
        last: What is there at their end.
        module: The module of all of them; a pattern where there are several.
        name: What the newest is called.
        places: Where they are, in the order of their births.
    """

    kind: Kind
    category: str
    births: tuple[int, ...]
    was_input: bool
    first: tuple[int, int]
    last: tuple[int, int]
    module: str | None
    name: str | None
    places: tuple[Place, ...]


class GrownCollection(NamedTuple):
    """A collection of Python that grew in the watched steps.

    Attributes:
        kind: Its class.
        looks: How many looks found it longer than the one before.
        bytes_per_step: What its new items take at least.
    """

    kind: str
    length: int
    grown: int
    looks: int
    bytes_per_step: float


class LeakWatch(ArmedJob):
    """Watches some steps.

    Attributes:
        found: Kinds of storages that stayed.
        before: How many storages and bytes there were of each part before the watched steps.
        after: The same after them; empty before that.
        counts: One per step's end, the first from before the watched steps.
        kept: What stayed, the largest growth first.
        collections: Collections of Python that grew, the largest growth first.
        holders: Who refers to what stayed, in the same order, as far as that was looked for.
        collection_holders: Who refers to the collections, in their order.
        other: Descriptors, threads and workers.
    """

    what = "leak"

    def __init__(
        self, recording: Recording, accelerator: Accelerator, request: ArmRequest, number: int
    ) -> None:
        super().__init__(number, request.steps)
        self._most_held_s = request.most_held_s
        self.counts: list[StepCount] = []
        self.before: dict[Part, tuple[int, int]] = {}
        self.after: dict[Part, tuple[int, int]] = {}
        self.kept: list[Kept] = []
        self.holders: list[Holder] = []
        self.collections: list[GrownCollection] = []
        self.collection_holders: list[Holder] = []
        self._newest: list[Storage] = []
        self._inputs: set[int | None] = set()
        self._first: dict[Kind, tuple[int, int]] = {}
        self._recording, self._accelerator = recording, accelerator
        self._search: HolderSearch | None = None
        self._search_ends_ns = 0
        self._longest_ns = 0
        self._is_noting = False
        self._calls: SavingCalls | None = None
        self._hooks: Hooks | None = None
        self._stale = StaleGradients(recording)
        self._survey = StandingSurvey(surveyor_of(recording))
        self._limits = Limits(_LOOK_S)
        self._left_out = self._blind = 0
        self.other = OtherGrowth(surveyor_of(recording), self.steps, lambda: recording.step)
        self.guard = Guard("leak", self.end)

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        held_ns = max((self._longest_ns, *[count.cost_ns for count in self.counts]))
        if not held_ns:
            return ()
        looks = Looks(held_ns, self._limits.reach.most, self._left_out, self._blind)
        return looks.told(len(self.counts))

    def _work(self) -> None:
        """Note what is there; once the steps are over, judge it, and then look for who holds it."""
        if self.done >= self.steps and self.state == "armed":
            self._look()
            return
        if not self._survey.has_come():
            return
        self._count()
        if self._is_too_long():
            return
        if self.done >= self.steps:
            self._stale.stop()
            self._judge()

    def _let_go(self) -> None:
        """Keep only what was found."""
        self._newest, self._first, self._inputs = [], {}, set()
        self._note_no_calls()
        self._stale.stop()
        self._survey.close()
        self.other.close()
        if self._is_noting:
            self._is_noting = False
            births_of(self._recording).end()
        if self._search is not None:
            self._search.close()

    def _count(self) -> None:
        """Note what is alive as a step has ended."""
        start, step = time.perf_counter_ns(), self._recording.step - 1
        ages = births_of(self._recording)
        if not self._is_noting:
            self._is_noting = True
            ages.begin()
        sight = ages.sighting(step if self.counts else None)
        storages = storages_now(self._recording, (), self._survey.good(), sight, self._limits)
        self._left_out = max(self._left_out, self._limits.left_out)
        self._blind += not self._limits.knows_gradients
        self._newest = storages
        self._inputs.update(s.identity for s in storages if s.category == "inputs")
        if not self.counts:
            self._first = _summed(storages, _kind_of)
            self.before = _summed(storages, _part_of)
        modules, hooks, newest = _hooks_of(self._recording)
        self.counts.append(
            StepCount(
                step=step,
                categories=_summed(storages, lambda storage: storage.category),
                modules=modules,
                hooks=hooks,
                newest_hook=newest,
                stale_gradients=self._stale.take(),
                graph_pools=graph_pools_of(self._accelerator.segments()),
                process=self.other.count(len(self.counts), step),
                cost_ns=time.perf_counter_ns() - start,
            )
        )
        self._survey.take()  # not before: whoever makes one wants the interpreter lock
        if self.state == "waiting":
            self.state = "armed"
            self._stale.start()
            self._note_calls()
            return
        self.done += 1
        self.saw(step)

    def _is_too_long(self) -> bool:
        """Give up where so many looks as it takes would hold the training for longer than it may.

        Where fewer than were asked for are enough, it makes no more.
        """
        held_s = self.counts[-1].cost_ns * 1e-9
        left_s = math.inf if self._most_held_s is None else self._most_held_s
        left_s -= sum(count.cost_ns for count in self.counts) * 1e-9
        least = max(LEAST_BIRTHS - self.done, 0)
        if left_s < least * held_s:
            self.failed(f"to look at what is in memory holds the training {held_s:.1f} s a step")
            return True
        if left_s < (self.steps - self.done) * held_s:
            self.steps = self.done + least
        return False

    def _note_calls(self) -> None:
        """Have it known from now on in whose calls autograd saves what."""
        self._calls = SavingCalls(threading.get_ident())
        self._hooks = Hooks(self._recording, self._calls)
        if self._calls.can_count:
            self._hooks.put_on()

    def _note_no_calls(self) -> None:
        """Take the hooks for that off again."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.take_off()

    def _judge(self) -> None:
        """Find the kinds that came in several steps, and never went."""
        gone = births_of(self._recording).gone()  # in whose place others may have come
        self._note_no_calls()
        calls, self._calls = self._calls, None
        assert calls is not None
        self.after = _summed(calls.all_named(self._newest), _part_of)
        first, last = self._first, _summed(self._newest, _kind_of)
        stayed: dict[Kind, list[Storage]] = {}
        for storage in self._newest:
            if storage.born is not None and storage.born > self.counts[0].step:
                stayed.setdefault(_kind_of(storage), []).append(storage)
        none = (0, 0)
        for kind, storages in stayed.items():
            births = tuple(sorted(s.born for s in storages if s.born is not None))
            storages.sort(key=lambda s: s.born or 0)
            grown = last[kind][0] - first.get(kind, none)[0] - gone * (kind.lasting is None)
            if len(set(births)) >= LEAST_BIRTHS and grown >= LEAST_BIRTHS:
                places = tuple([(s.device, s.address) for s in storages])
                modules = {s.module for s in storages}
                module = modules.pop() if len(modules) == 1 else kind.module
                begin, name = first.get(kind, none), storages[-1].name
                given = not self._inputs.isdisjoint(s.identity for s in storages)
                category = Counter(s.category for s in storages).most_common(1)[0][0]
                self.kept.append(
                    Kept(kind, category, births, given, begin, last[kind], module, name, places)
                )
        self._newest = []
        self.kept.sort(key=lambda kept: kept.first[1] - kept.last[1])
        self.found = len(self.kept)
        del self.kept[_MOST_GROUPS:]
        self.other.judge()
        self._search_ends_ns = time.perf_counter_ns() + _SEARCH_NS

    def _begin_search(self) -> HolderSearch:
        """Have it looked for who refers to what stayed, and to the collections that grew."""
        growing = self.other.growing()
        self.collections = [
            GrownCollection(
                kind=type(each.thing).__name__,
                length=each.length,
                grown=each.grown,
                looks=each.looks,
                bytes_per_step=each.grown * each.item_bytes / each.steps,
            )
            for each in growing
        ]
        sought = [Sought(kept.places) for kept in self.kept[:_MOST_SEARCHED]]
        sought += [Sought(thing=each.thing) for each in growing]
        self.other.close()
        return HolderSearch(self._recording, sought)

    def _look(self) -> None:
        """Look for who refers to what stayed, for a moment."""
        start = now = time.perf_counter_ns()
        if self._search is None and (self.other.is_done() or now > self._search_ends_ns):
            self._search = self._begin_search()
        search = self._search
        if search is None:
            return
        search.renew()
        while not search.is_done and now - start < _HOLD_NS // 2:
            search.advance()
            now = time.perf_counter_ns()
        self._longest_ns = max(self._longest_ns, now - start)
        if search.is_done or now > self._search_ends_ns:
            found, tensors = search.holders(), min(len(self.kept), _MOST_SEARCHED)
            self.holders, self.collection_holders = found[:tensors], found[tensors:]
            self.end()


def _part_of(storage: Storage) -> Part:
    return Part(storage.category, storage.module, storage.dtype, storage.device)


def _kind_of(storage: Storage) -> Kind:
    """Modules that differ by a number only are of one kind, so that a list that grows is one."""
    module = None if storage.module is None else _NUMBER.sub("*", storage.module)
    lasting = None if storage.category in _PASSING else storage.category
    return Kind(lasting, module, storage.dtype, storage.shape, storage.device)


def _summed(
    storages: Sequence[Storage], key_of: Callable[[Storage], Any]
) -> dict[Any, tuple[int, int]]:
    """How many storages there are by their key, and how many bytes they make.

    Args:
        key_of: Follows from what `_FACTS` are; asked once for all that are alike.
    """
    facts = list(map(_FACTS, storages))
    ones = dict(zip(facts, storages, strict=True))
    numbers: Counter[Any] = Counter()
    sizes: Counter[Any] = Counter()
    for alike, count in Counter(facts).items():
        one = ones[alike]
        numbers[key := key_of(one)] += count
        sizes[key] += count * one.bytes
    return {key: (number, sizes[key]) for key, number in numbers.items()}


def _hooks_of(recording: Recording) -> tuple[int, int, Holder | None]:
    """How many modules and hooks there are, and the hook that was registered last."""
    from .hook_counts import hooks_of

    return hooks_of(recording.objects.roots.alive())
