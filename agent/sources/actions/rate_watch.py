"""Looks whether the rate that somebody has set is still there as the next steps begin.

Rules of this file: looks in the training thread, and changes nothing. A scheduler computes the rate
anew, and some scripts set it at every step: whoever has set it by hand would not know.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ....safety.guard import Guard
from ..model.known_names import schedulers_of
from ..shared.recording import Recording
from ..torch_types import LRScheduler, Optimizer
from .ledger import is_number, number_of

_LEAST = 1e-15
_LOOKS, _LOOK_S = 5, 0.01
_SURE = 2
"""So many steps of later optimizers: beside one of them, another may still have its turn."""
_MOST_WAIT_S = 20.0
"""How long the answer to an eval is kept for the step after it."""


class RateWatch:
    """Compares the rates of an optimizer as its next steps begin.

    Attributes:
        found: The rates that stand in the place of those that were set; None while they do not.
        is_replaced: Whether an optimizer steps in its place that was not there as the look began.
        done: Set once enough is known.
    """

    def __init__(
        self,
        recording: Recording,
        optimizer: Optimizer,
        is_kept: Callable[[list[float]], bool],
        *,
        steps: int,
    ) -> None:
        self._recording = recording
        self._optimizer = optimizer
        self._is_kept = is_kept
        self._steps_left = steps
        self._look: Callable[..., None] = self._step_begins
        self._guard = Guard("learning rate", self.end)
        self.found: list[float] | None = None
        self.is_replaced = False
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self.done = threading.Event()

    def begin(self) -> None:
        """Look from now on; the training must stand still."""
        self._known.update(self._recording.objects.made.alive())
        self._known.add(self._optimizer)
        self._recording.events.before_step += (self._look,)

    def end(self) -> None:
        """Look no more."""
        self._recording.events.forget(self._look)

    def _step_begins(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """See `Events.before_step`."""
        if self.done.is_set():
            return
        if optimizer is self._optimizer:
            self._guard.run(self._compare, optimizer)
        elif optimizer not in self._known:
            self.is_replaced = True
            self.done.set()

    def _compare(self, optimizer: Optimizer) -> None:
        """See whether the rates are still those that were set."""
        rates = rates_of(optimizer)
        self._steps_left -= 1
        if not self._is_kept(rates):
            self.found = rates
        if self.found is not None or not self._steps_left:
            self.done.set()


class Successors:
    """Knows which optimizers have been replaced: others step since, which were made later.

    As for each fold of a cross-validation. One that steps again is in use, whatever else does.
    """

    def __init__(self, optimizers: list[Optimizer], made: list[Optimizer]) -> None:
        self._known: weakref.WeakSet[Any] = weakref.WeakSet([*made, *optimizers])
        self._later: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        for optimizer in optimizers:
            self._later[optimizer] = 0

    def fits(self, optimizers: list[Optimizer], made: list[Optimizer]) -> bool:
        """Whether a look at these that begins now would know no less, and no more."""
        are_seen = all(self._later.get(optimizer) == 0 for optimizer in optimizers)
        return are_seen and all(optimizer in self._known for optimizer in made)

    def have_replaced(self, optimizer: Optimizer) -> bool:
        """Whether they step in the place of this one."""
        return self._later.get(optimizer, 0) >= _SURE

    def count(self, optimizer: Optimizer) -> None:
        """One is about to step: count the steps of others since those of each."""
        if optimizer in self._later:
            self._later[optimizer] = 0
        elif optimizer not in self._known:
            for key in list(self._later):
                self._later[key] += 1


def successors_of(recording: Recording, optimizers: list[Optimizer]) -> Successors:
    """Those of some optimizers, for as long as they are held; the training must stand still.

    Actions share them where they can: each look is at every step.
    """
    made = recording.objects.made.alive()
    for look in recording.events.before_step:
        there = look.successors() if isinstance(look, _Look) else None
        if there is not None and there.fits(optimizers, made):
            return there
    there = Successors(optimizers, made)
    recording.events.before_step += (_Look(recording, there),)
    return there


class _Look:
    """Has successors see each step, as long as somebody holds them.

    Attributes:
        successors: Gives them; None once nobody does.
    """

    def __init__(self, recording: Recording, successors: Successors) -> None:
        self.successors = weakref.ref(successors)
        self._events = recording.events
        self._guard = Guard("learning rate", self.end)

    def end(self) -> None:
        """Look no more."""
        self._events.forget(self)

    def __call__(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """See `Events.before_step`."""
        there = self.successors()
        if there is None:
            self.end()
        else:
            self._guard.run(there.count, optimizer)


class RatesSet:
    """Notices that code has set the rate, and whether the next step finds it as it was set."""

    def __init__(self, recording: Recording) -> None:
        """Look at the rates before the code runs, while the training stands still."""
        self._recording = recording
        self._optimizers = recording.objects.optimizers.alive()
        self._before = [rates_of(optimizer) for optimizer in self._optimizers]
        self._watch: RateWatch | None = None
        self._optimizer: Any = None
        self._own: list[float] = []
        self._set: list[float] = []
        self._schedulers: list[tuple[LRScheduler, object]] = []

    def look_again(self) -> None:
        """The code has run, and the training still stands."""
        for optimizer, before in zip(self._optimizers, self._before, strict=True):
            now = rates_of(optimizer)
            if len(now) == len(before) and not are_same(now, before):
                self._optimizer, self._own, self._set = optimizer, before, now
                self._schedulers = [(s, _moves_of(s)) for s in schedulers_of(optimizer)]
                self._watch = RateWatch(self._recording, optimizer, self._is_nearer, steps=1)
                self._watch.begin()
                return

    def told(self, limit_s: float) -> tuple[str, ...]:
        """What the next step has shown, in a sentence; nothing where the rate has stayed.

        Args:
            limit_s: How long it may be waited for.
        """
        watch = self._watch
        if watch is None:
            return ()
        watch.done.wait(max(0.0, min(limit_s, _MOST_WAIT_S)))
        watch.end()
        place = next(i for i, rate in enumerate(self._set) if rate != self._own[i])
        wanted = f"{self._set[place]:g}"
        stays = f"`act lr {wanted}` sets it so that it stays"
        if not watch.done.is_set():
            return (f"no step has shown yet whether the rate {wanted} stays; {stays}",)
        if watch.found is None:
            return ()
        who, now = self._who(), f"{watch.found[place]:g}"
        return (f"the rate {wanted} did not stay: {who} made it {now} by the next step; {stays}",)

    def _is_nearer(self, rates: list[float]) -> bool:
        """Whether rates have not gone back: a scheduler may move them on by its usual step."""
        return len(rates) == len(self._set) and all(
            abs(rate - wanted) <= abs(rate - own)
            for rate, wanted, own in zip(rates, self._set, self._own, strict=True)
        )

    def _who(self) -> str:
        """Who sets the rates: a scheduler that has moved and whose last they are, else the script.

        One that stands still may have set the same rate long ago, by chance.
        """
        for _ in range(_LOOKS):  # it may be setting them at this moment
            now = rates_of(self._optimizer)
            for scheduler, moves in self._schedulers:
                last = last_rates(scheduler)
                if last and _moves_of(scheduler) != moves and are_same(last, now):
                    return type(scheduler).__name__
            time.sleep(_LOOK_S)
        return "the script"


def watch_rates(training: Any) -> RatesSet | None:
    """The rates before code runs; None in a process of which nothing is recorded."""
    recording = training.watched() if hasattr(training, "watched") else None
    return None if recording is None else RatesSet(recording)


def rates_of(optimizer: Optimizer) -> list[float]:
    """The rate of each parameter group."""
    return [number_of(g["lr"]) for g in optimizer.param_groups if is_number(g.get("lr"))]


def last_rates(scheduler: LRScheduler) -> list[float] | None:
    """What a scheduler has set last."""
    rates = vars(scheduler).get("_last_lr")
    return [number_of(rate) for rate in rates] if isinstance(rates, list) else None


def _moves_of(scheduler: LRScheduler) -> object:
    """What differs once a scheduler has set rates."""
    return vars(scheduler).get("last_epoch")


def are_same(one: list[float], other: list[float]) -> bool:
    """Whether rates are equal, but for rounding."""
    return len(one) == len(other) and all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=_LEAST) for a, b in zip(one, other, strict=True)
    )
