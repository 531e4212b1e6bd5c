"""Another learning rate, that schedulers and scripts do not take back.

Rules of this file: a scheduler computes the rate from numbers of its own, so those are multiplied
by the same factor. A script that sets the rate itself is found out at the next two steps.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from ....act_wire import Change, Lr
from ....errors import ActRefused
from .ledger import Applied, Ledger, is_number, number_of, write
from .rate_watch import RateWatch, are_same, last_rates, rates_of
from .scene import Scene
from .step_hooks import StepHooks, exchange

if TYPE_CHECKING:
    from ..steps.recording import Recording

_OF_GROUPS = ("initial_lr", "max_lr", "min_lr", "swa_lr")
"""What schedulers keep in the parameter groups: OneCycleLR and SWALR."""
_LISTS = ("base_lrs", "max_lrs", "_last_lr")
_SCALARS = ("eta_min",)


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
        self._schedulers: list[Any] = []
        self._ledger = Ledger()
        self._watch: RateWatch | None = None

    def prepare(self, scene: Scene) -> None:
        """Find the schedulers."""
        scene.refuse_alone("another learning rate")
        self._optimizer = scene.optimizer()
        self._schedulers = scene.schedulers()
        held = scene.hooks.get("lr")
        if held is not None and held.is_on and not self._asked.hold:
            raise ActRefused(
                f"the rate is held ({held.value})",
                help="Nothing was changed. `act undo` of that action ends it.",
            )

    def apply(self, scene: Scene) -> Applied:
        """Change the rates, or begin to hold them."""
        if self._asked.hold:
            return self._hold(scene)
        groups = self._optimizer.param_groups
        factors = [self._factor(number_of(group["lr"])) for group in groups]
        try:
            for index, group in enumerate(groups):
                value = self._asked.value
                new = number_of(group["lr"]) * factors[index] if value is None else value
                self._ledger.set("lr", group, "lr", new, group=index)
                for key in _OF_GROUPS:
                    if is_number(group.get(key)):
                        wanted = number_of(group[key]) * factors[index]
                        self._ledger.set(key, group, key, wanted, group=index)
            for scheduler in self._schedulers:
                self._follow(scheduler, factors)
        except BaseException:
            self._ledger.roll_back()
            raise
        new_rates = rates_of(self._optimizer)
        self._watch = RateWatch(
            scene.recording,
            self._optimizer,
            lambda rates: self._is_kept(rates, new_rates),
            steps=2,
        )
        self._watch.begin()
        return Applied(changes=self._ledger.changes(), undo=self._take_back)

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Say what the next steps have shown of the script."""
        watch = self._watch
        if watch is None:
            return applied
        watch.done.wait(max(0.0, until - time.monotonic()))
        watch.end()
        if not watch.done.is_set():
            note = "whether the script sets the rate itself is not known: no two steps have ended"
            return applied._replace(notes=(*applied.notes, note))
        if watch.found is None:
            return applied
        how = f"--scale {self._asked.scale:g}" if self._asked.scale else f"{self._asked.value:g}"
        note = (
            f"the script sets the rate itself: it was {watch.found[0]:g} again at the next step."
            f" `act lr {how} --hold` puts yours in place at every step"
        )
        return applied._replace(notes=(*applied.notes, note))

    def _is_kept(self, rates: list[float], wanted: list[float]) -> bool:
        """Whether rates are those that were set, or what a scheduler has made of them since."""
        expected = [wanted, *(own for s in self._schedulers if (own := last_rates(s)))]
        return any(are_same(rates, one) for one in expected)

    def _factor(self, rate: float) -> float:
        """What numbers are multiplied by that are to a rate as they were."""
        if self._asked.scale is not None:
            return self._asked.scale
        if rate == 0 and self._schedulers:
            raise ActRefused(
                "the rate is 0 now, so how a scheduler would have to follow is not known",
                help="Nothing was changed. Use --scale, or wait until it is not 0.",
            )
        return (self._asked.value or 0.0) / rate if rate else 1.0

    def _follow(self, scheduler: Any, factors: list[float]) -> None:
        """Multiply what a scheduler computes the rates from."""
        name, own = type(scheduler).__name__, vars(scheduler)
        for attribute in _LISTS:
            values = own.get(attribute)
            if isinstance(values, list) and len(values) == len(factors):
                for index, factor in enumerate(factors):
                    new = number_of(values[index]) * factor
                    what = "" if attribute == "_last_lr" else f"{attribute} of {name},"
                    self._ledger.set(what, values, index, new, group=index)
        for attribute in _SCALARS:
            is_there = is_number(own.get(attribute)) and own[attribute] != 0
            if is_there and len(set(factors)) == 1:
                self._ledger.set(f"{attribute} of {name}", scheduler, attribute,
                                 own[attribute] * factors[0])  # fmt: skip

    def _take_back(self) -> tuple[Change, ...]:
        """As it would be by now without this action."""
        scale = self._asked.scale

        def factor(before: float, after: float) -> float:
            if scale is not None:
                return 1 / scale
            return before / after if after else 1.0

        return self._ledger.undo(factor)

    def _hold(self, scene: Scene) -> Applied:
        """Put the rate in place before every step, and the script's back after it."""
        held, old = _Held(self._asked, scene.recording), scene.hooks.get("lr")
        hooks = StepHooks("lr", held.text, before=held.put_in, after=held.give_back)
        put_back = exchange(scene.hooks, "lr", hooks, [self._optimizer])
        what = "lr at every optimizer step"
        before = old.value if old is not None else None

        def undo() -> tuple[Change, ...]:
            was, now = put_back()
            scene.recording.held_lr = None
            return (Change(what=what, before=was, after=now),)

        rate = number_of(self._optimizer.param_groups[0]["lr"])
        note = f"between the steps the script still sees its own rate, now {rate:g}"
        change = Change(what=what, before=before, after=held.text)
        return Applied(changes=(change,), notes=(note,), undo=undo, kind="lr")


class _Held:
    """A rate that is in place only while the optimizer steps."""

    def __init__(self, asked: Lr, recording: Recording) -> None:
        self._asked = asked
        self._recording = recording
        self._saved: list[tuple[Any, float, float]] = []
        self.text = f"{asked.value:g}" if asked.scale is None else f"the script's x {asked.scale:g}"

    def put_in(self, optimizer: Any) -> None:
        """A step begins."""
        self.give_back(optimizer)  # of a step that has raised
        for group in optimizer.param_groups:
            own = number_of(group["lr"])
            value = self._asked.value
            new = own * (self._asked.scale or 0.0) if value is None else value
            write(group, "lr", new)
            self._saved.append((group, own, number_of(group["lr"])))
        self._recording.held_lr = self._saved[0][2] if self._saved else None

    def give_back(self, optimizer: Any) -> None:
        """A step has ended."""
        saved, self._saved = self._saved, []
        for group, own, ours in saved:
            if number_of(group["lr"]) == ours:
                write(group, "lr", own)
