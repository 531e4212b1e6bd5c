"""Another learning rate, that schedulers and scripts do not take back.

Rules of this file: a scheduler computes the rate from numbers of its own, so those are multiplied
by the same factor. A script that sets the rate itself is found out at the next two steps.
"""

from __future__ import annotations

import dataclasses
import math
import time
import weakref
from collections.abc import Callable
from typing import Any

from ....errors import ActRefused
from ....messages.about.act import Change, Lr
from ..shared.recording import Recording
from ..torch_types import LRScheduler, Optimizer
from .ledger import Applied, Ledger, Undone, is_number, number_of, write
from .moments.step_hooks import StepHooks, exchange, found
from .rate_watch import RateWatch, are_same, last_rates, rates_of, successors_of
from .targets.scene import Scene

_OF_GROUPS = ("initial_lr", "max_lr", "min_lr", "swa_lr")
"""What schedulers keep in the parameter groups: OneCycleLR and SWALR."""
_LAST = "_last_lr"
_LISTS = ("base_lrs", "max_lrs", _LAST)
_SCALARS = ("eta_min",)
_POLL_S = 0.01


class LearningRate:
    """Sets or multiplies the rate, once or before every step."""

    def __init__(self, asked: Lr) -> None:
        if (asked.value is None) == (asked.scale is None):
            raise ActRefused("a rate or a scale is needed, one of both")
        number = asked.value if asked.scale is None else asked.scale
        if number is None or not math.isfinite(number) or number < 0:
            raise ActRefused(f"{number} is no rate that can be trained with")
        if asked.scale == 0:
            raise ActRefused("a scale of 0 could not be taken back", help="`act lr 0` sets 0.")
        self._asked = asked
        self._rates: list[_Rates] = []
        self._notes: tuple[str, ...] = ()
        self._watches: list[RateWatch] = []

    def prepare(self, scene: Scene) -> None:
        """Find the optimizers and their schedulers."""
        scene.refuse_alone("another learning rate")
        chosen = scene.chosen(self._asked.optimizer)
        self._chosen, self._notes = chosen.optimizers, chosen.notes
        are_several = len(self._chosen) > 1
        self._rates = [
            _Rates(
                self._asked,
                optimizer,
                scene.schedulers(optimizer),
                scene.name_of(optimizer) if are_several else "",
            )
            for optimizer in self._chosen
        ]
        held = [one.value for one in found(scene.hooks, "lr", self._chosen) if one.is_on]
        if held and not self._asked.hold:
            raise ActRefused(
                f"the rate is held ({', '.join(held)})",
                help="Nothing was changed. `act undo` of that action ends it.",
            )

    def apply(self, scene: Scene) -> Applied:
        """Change the rates, or begin to hold them."""
        optimizers, self._chosen = self._chosen, []  # an undo must keep none of them alive
        if self._asked.hold:
            return _hold(self._asked, optimizers, self._notes, scene)
        seen: set[int] = set()
        try:
            for rates in self._rates:
                rates.plan(seen)
            for rates in self._rates:
                rates.ledger.carry_out()
        except BaseException:
            for rates in self._rates:
                rates.ledger.roll_back()
            raise
        self._successors = successors_of(scene.recording, optimizers)
        self._watches = [rates.watch(scene.recording) for rates in self._rates]
        for watch in self._watches:
            watch.begin()
        changes = tuple([change for rates in self._rates for change in rates.changes()])
        return Applied(changes=changes, notes=self._notes, undo=self._take_back)

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Say what the next steps have shown of the script."""
        watches = self._watches
        while time.monotonic() < until:
            if all(watch.done.is_set() for watch in watches):
                break
            if any(watch.found is not None for watch in watches):
                break
            time.sleep(_POLL_S)
        for watch in watches:
            watch.end()
        self._watches = []
        found = next((watch.found for watch in watches if watch.found is not None), None)
        if found is None:
            if any(watch.is_replaced for watch in watches):
                return applied._replace(notes=(*applied.notes, _REPLACED))
            if all(watch.done.is_set() for watch in watches):
                return applied
            note = "whether the script sets the rate itself is not known: no two steps have ended"
            return applied._replace(notes=(*applied.notes, note))
        how = f"--scale {self._asked.scale:g}" if self._asked.scale else f"{self._asked.value:g}"
        note = (
            f"the script sets the rate itself: it was {found[0]:g} again at the next step."
            f" `act lr {how} --hold` puts yours in place at every step"
        )
        return applied._replace(notes=(*applied.notes, note))

    def _take_back(self) -> Undone:
        """As it would be by now without this action, where that is still there and in use."""
        replaced = self._successors.have_replaced
        gone = [r for r in self._rates if (o := r.optimizer()) is None or replaced(o)]
        there = [rates for rates in self._rates if rates not in gone]
        for rates in there:
            rates.look()
        undone = [rates.take_back() for rates in there]
        return Undone(
            tuple([change for one in undone for change in one.changes]),
            tuple([change for one in undone for change in one.overwritten]),
            tuple([rates.told_replaced() for rates in gone]),
        )


def _hold(asked: Lr, optimizers: list[Optimizer], named: tuple[str, ...], scene: Scene) -> Applied:
    """Put the rate in place before every step, and the script's back after it."""
    recording = scene.recording
    held = _Held(asked, recording)
    hooks = StepHooks("lr", held.text, before=held.put_in, after=held.give_back)
    what = "lr at every optimizer step"
    if len(optimizers) > 1:
        what = f"{what} of {scene.listed(optimizers)}"
    change, put_back = exchange(scene.hooks, "lr", hooks, optimizers, what=what)

    def undo() -> Undone:
        undone = put_back()
        held.forget()
        return undone

    rates = ", ".join(f"{number_of(one.param_groups[0]['lr']):g}" for one in optimizers)
    note = f"between the steps the script still sees its own rate, now {rates}"
    return Applied((change,), (note, *named), undo, "lr", hooks, weakref.WeakSet(optimizers))


_REPLACED = (
    "the script has made another optimizer since, which steps with the script's own rate: what was"
    " changed is that of the one before. If it does so again and again, change the rate in the"
    " script"
)


class _Rates:
    """The rates of one optimizer, and what its schedulers compute them from; keeps none alive.

    Attributes:
        optimizer: Gives it; None once it is gone.
        ledger: What was changed.
    """

    def __init__(
        self, asked: Lr, optimizer: Optimizer, schedulers: list[LRScheduler], name: str
    ) -> None:
        self.optimizer = weakref.ref(optimizer)
        self._schedulers = [weakref.ref(scheduler) for scheduler in schedulers]
        self.ledger = Ledger()
        self._asked = asked
        self._name = name
        self._class = type(optimizer).__name__
        self._bases: list[tuple[weakref.ref[Any], str, list[Any]]] = []
        self._scaled: list[float] = []

    @property
    def schedulers(self) -> list[Any]:
        """Those that are still there."""
        return [there for reference in self._schedulers if (there := reference()) is not None]

    @property
    def groups(self) -> list[Any]:
        """The parameter groups of the optimizer; none once that is gone."""
        optimizer: Any = self.optimizer()
        return [] if optimizer is None else optimizer.param_groups

    def _group(self, index: int) -> Callable[[], Any]:
        """What gives a group, or that in its place: `load_state_dict` makes them anew."""
        known = id(self.groups[index])

        def find() -> Any:
            groups = self.groups
            same = next((group for group in groups if id(group) == known), None)
            return groups[index] if same is None and index < len(groups) else same

        return find

    def _list(self, values: list[Any]) -> Callable[[], Any]:
        """What gives a scheduler's list, which holds nothing but numbers."""
        return lambda: values

    def plan(self, seen: set[int]) -> None:
        """Plan what they are to be.

        Args:
            seen: The groups and schedulers that are planned for, by identity: one may be of an
                optimizer, and of another one that is wrapped around it.
        """
        groups = self.groups
        factors = [self._factor(number_of(group["lr"])) for group in groups]
        for index, group in enumerate(groups):
            if id(group) in seen:
                continue
            seen.add(id(group))
            value = self._asked.value
            new = number_of(group["lr"]) * factors[index] if value is None else value
            self.ledger.plan("lr", self._group(index), "lr", new, group=index)
            for key in _OF_GROUPS:
                if is_number(group.get(key)):
                    wanted = number_of(group[key]) * factors[index]
                    self.ledger.plan(key, self._group(index), key, wanted, group=index)
        for scheduler in self.schedulers:
            if id(scheduler) not in seen:
                seen.add(id(scheduler))
                self._follow(scheduler, factors)

    def watch(self, recording: Recording) -> RateWatch:
        """What looks whether they are there at the next two steps, or moved by a scheduler."""
        optimizer: Any = self.optimizer()
        wanted = rates_of(optimizer)
        before = [last_rates(scheduler) for scheduler in self.schedulers]

        def are_kept(rates: list[float]) -> bool:
            moved = [own for s in self.schedulers if (own := last_rates(s)) and own not in before]
            return any(are_same(rates, one) for one in [wanted, *moved])

        return RateWatch(recording, optimizer, are_kept, steps=2)

    def changes(self) -> tuple[Change, ...]:
        """From what to what."""
        return self._named(self.ledger.changes())

    def look(self) -> None:
        """See what there is now, before the rates of any optimizer are taken back."""
        optimizer: Any = self.optimizer()
        self._scaled = rates_of(optimizer)
        self.ledger.look(self._carries)

    def take_back(self) -> Undone:
        """As it would be by now, where the change was still there."""
        scale = self._asked.scale

        def factor(before: float, after: float) -> float:
            if scale is not None:
                return 1 / scale
            return before / after if after else 1.0

        undone = self.ledger.undo(factor)
        optimizer: Any = self.optimizer()
        for scheduler in self.schedulers:
            _tell_scheduler(scheduler, self._scaled, rates_of(optimizer))
        return Undone(self._named(undone.changes), self._named(undone.overwritten))

    def told_replaced(self) -> str:
        """That there is nothing to take back, in words."""
        whose = self._name or self._class
        told = ", ".join(f"{change.what}: {change.after}" for change in self.ledger.changes())
        return (
            f"{whose}, which has what the action had set ({told}), steps no more: the script has"
            " made another optimizer since, which steps with the script's own rate. Nothing was"
            " changed"
        )

    def _named(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        if not self._name:
            return changes
        return tuple([dataclasses.replace(c, what=f"{self._name}: {c.what}") for c in changes])

    def _carries(self, holder: object, key: object, has_moved: bool) -> bool:  # noqa: FBT001 - as the ledger calls it
        """Whether a number is still what was made of it, or what a scheduler has made of that."""
        if isinstance(holder, dict):
            places = [n for n, g in enumerate(self.groups) if g is holder]
            if not places:
                return False
            return not has_moved or (key == "lr" and self._is_scheduled(places[0]))
        return not has_moved

    def _is_scheduled(self, group: int) -> bool:
        """Whether the rate of a group is what a scheduler has set, from numbers that are ours."""
        rate = number_of(self.groups[group]["lr"])
        for scheduler in self.schedulers:
            rates = last_rates(scheduler)
            is_its = rates is not None and len(rates) > group and are_same([rate], [rates[group]])
            if is_its and self._has_ours(scheduler):
                return True
        return False

    def _has_ours(self, scheduler: LRScheduler) -> bool:
        """Whether a scheduler still computes from what was changed."""
        return all(
            vars(scheduler).get(attribute) is values
            for owner, attribute, values in self._bases
            if owner() is scheduler
        )

    def _factor(self, rate: float) -> float:
        """What numbers are multiplied by that are to a rate as they were."""
        if self._asked.scale is not None:
            return self._asked.scale
        if rate == 0 and self.schedulers:
            raise ActRefused(
                "the rate is 0 now, so how a scheduler would have to follow is not known",
                help="Nothing was changed. Use --scale, or wait until it is not 0.",
            )
        return (self._asked.value or 0.0) / rate if rate else 1.0

    def _follow(self, scheduler: LRScheduler, factors: list[float]) -> None:
        """Multiply what a scheduler computes the rates from."""
        name, own = type(scheduler).__name__, vars(scheduler)
        for attribute in _LISTS:
            values = own.get(attribute)
            if isinstance(values, list) and len(values) == len(factors):
                if attribute != _LAST:
                    self._bases.append((weakref.ref(scheduler), attribute, values))
                for index, factor in enumerate(factors):
                    new = number_of(values[index]) * factor
                    what = "" if attribute == _LAST else f"{attribute} of {name},"
                    self.ledger.plan(what, self._list(values), index, new, group=index)
        for attribute in _SCALARS:
            is_there = is_number(own.get(attribute)) and own[attribute] != 0
            if is_there and len(set(factors)) == 1:
                self.ledger.plan(f"{attribute} of {name}", weakref.ref(scheduler), attribute,
                                own[attribute] * factors[0])  # fmt: skip


def _tell_scheduler(scheduler: LRScheduler, before: list[float], now: list[float]) -> None:
    """Have a scheduler report the rates there are, where it has reported those before."""
    told = vars(scheduler).get(_LAST)
    if not isinstance(told, list) or not len(told) == len(before) == len(now):
        return
    for index, (old, new) in enumerate(zip(before, now, strict=True)):
        if old != new and are_same([number_of(told[index])], [old]):
            write(told, index, new)


class _Held:
    """A rate that is in place only while the optimizer steps."""

    def __init__(self, asked: Lr, recording: Recording) -> None:
        self._asked = asked
        self._recording = recording
        self._saved: dict[int, list[tuple[Any, float, float]]] = {}
        self._told: set[int] = set()
        self.text = f"{asked.value:g}" if asked.scale is None else f"the script's x {asked.scale:g}"

    def put_in(self, optimizer: Optimizer) -> None:
        """A step begins."""
        self.give_back(optimizer)  # of a step that has raised
        found = [(g, number_of(g["lr"])) for g in optimizer.param_groups if not self._is_held(g)]
        for group, own in found:  # all are read by now: one tensor may be the rate of several
            value = self._asked.value
            write(group, "lr", own * (self._asked.scale or 0.0) if value is None else value)
        self._saved[id(optimizer)] = [(g, own, number_of(g["lr"])) for g, own in found]
        if optimizer.param_groups:
            now = number_of(optimizer.param_groups[0]["lr"])
            self._recording.objects.held_lr[id(optimizer)] = now
            self._told.add(id(optimizer))

    def forget(self) -> None:
        """No optimizer steps with it any more."""
        for key in self._told:
            self._recording.objects.held_lr.pop(key, None)

    def _is_held(self, group: dict[str, Any]) -> bool:
        """Whether the rate is in place already, by the step of an optimizer around this one."""
        places = {id(group), id(group["lr"])}  # it may have but the tensor in common
        return any(
            places & {id(one), id(one["lr"])} and number_of(one["lr"]) == ours
            for saved in self._saved.values()
            for one, _, ours in saved
        )

    def give_back(self, optimizer: Optimizer) -> None:
        """A step has ended."""
        for group, own, ours in self._saved.pop(id(optimizer), ()):
            if number_of(group["lr"]) == ours:
                write(group, "lr", own)
