"""Looks at the loss and the gradients before every optimizer step, and acts on what is not finite.

Rules of this file: runs in the training thread, and waits for the device once per step: what is not
known before the step cannot keep it from being made. Nothing of torch or of the script is replaced:
an optimizer leaves parameters without a gradient alone, so the gradients are taken away for the
time of a step that is skipped, and put back after it, as zeros.

Under DDP all ranks decide alike, and no collective is started for that: they look at the same
gradients, because the exchange hands what is not finite on one of them to all. So there the
gradients alone decide; a rank's own loss is only written down.
"""

from __future__ import annotations

import math
import sys
import time
import weakref
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from ....errors import ActRefused
from ....messages.about.act import GUARD_ACTIONS, NanGuard
from ....nan_guard import NonFiniteStep
from ....ring.format import DONE
from ....tables import NAN_OUTCOMES, NAN_STEPS
from ...recording.source import SourceReport
from ..accelerator import is_capturing
from ..numbers.gradient_tensors import is_plain, norms_of, parameters_of
from ..shared.versions import version_of
from ..torch_types import Optimizer, Tensor
from .ledger import Applied
from .moments.step_hooks import StepHooks, exchange, found
from .targets.chosen import listed
from .targets.scene import Scene

KIND = "nan-guard"
_WHAT = "a step that is not finite"
_ADVISED = 10
_INSTEAD = (
    "There each rank sees a part of the gradients. `act nan-guard warn` works; to skip a step, have"
    " the script look at the norm that clip_grad_norm_ returns, which is that of all ranks."
)


class NanGuarding:
    """Begins to guard, or ends it."""

    def __init__(self, asked: NanGuard) -> None:
        if asked.do not in GUARD_ACTIONS:
            raise ActRefused(f"{asked.do!r} is none of {', '.join(GUARD_ACTIONS)}")
        if asked.consecutive is not None and asked.consecutive < 1:
            raise ActRefused("the count of bad steps in a row begins with 1")
        self._asked = asked
        self._guard: _Guard | None = None

    def prepare(self, scene: Scene) -> None:
        """Find the optimizers, and refuse what could not be done on all ranks alike."""
        self._optimizers, self._named = scene.chosen(self._asked.optimizer)
        if self._asked.do == "off":
            guarded = found(scene.hooks, KIND, self._optimizers)
            if any(isinstance(one, _Hooks) and one.looks.skips for one in guarded):
                scene.refuse_alone("to end skipping")
            return
        if _skips(self._asked):
            self._refuse_skipping(scene)
        self._has_scaler = scene.has_scaler()
        self._guard = _Guard(scene, self._asked, self._optimizers)

    def apply(self, scene: Scene) -> Applied:
        """Put the hooks on, or take them off."""
        hooks, in_force = None, scene.hooks
        if self._guard is None and not found(in_force, KIND, self._optimizers):
            return Applied(notes=("no guard was in force",))
        if self._guard is not None:
            hooks = _Hooks(self._guard, self._asked.do)
        change, undo = exchange(in_force, KIND, hooks, self._optimizers, what=_WHAT)
        scene.training.on_demand[KIND] = lambda: _report(in_force)
        on = weakref.WeakSet(self._optimizers)
        return Applied((change,), self._notes(), undo, KIND, hooks, on)

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Nothing more."""
        return applied

    def _refuse_skipping(self, scene: Scene) -> None:
        """Make sure that a skipped step is one on all ranks, and that it can be skipped at all."""
        scene.refuse_sharded("skipping a step", _INSTEAD)
        if any(cls.__name__ == "LBFGS" for o in self._optimizers for cls in type(o).__mro__):
            raise ActRefused("LBFGS takes gradients several times in one step, so none is skipped")
        size = scene.world_size()
        if size == 1:
            return
        scene.refuse_alone("skipping steps")
        shared = scene.averaged()
        if any(id(p) not in shared for o in self._optimizers for p in parameters_of(o)):
            raise ActRefused(
                f"only DistributedDataParallel over all {size} ranks is known to give them the same"
                " gradients, and so the same steps to skip",
                help=f"Nothing was changed. {_INSTEAD}",
            )

    def _notes(self) -> tuple[str, ...]:
        """What else decides about steps."""
        if self._guard is None or not self._has_scaler:
            return self._named
        return (
            *self._named,
            "a gradient scaler is in use: steps whose gradients overflow are left out by itself,"
            " and do not come here",
        )


class _Found(NamedTuple):
    """What is wrong with a step.

    Attributes:
        bad: The places of the parameters whose gradients are not finite.
        loss: None where it is not known.
    """

    bad: list[int]
    loss: float | None


class _Guard:
    """Looks at each step of some optimizers.

    Attributes:
        skips: Whether bad steps are skipped.
        looked: How many steps it has looked at.
        found: How many of them were bad.
        last_step: The last of those.
        in_a_row: How many were, by ``id(optimizer)``, up to now.
    """

    def __init__(self, scene: Scene, asked: NanGuard, optimizers: list[Optimizer]) -> None:
        self._recording = scene.recording
        self._do = asked.do
        self.skips = _skips(asked)
        self._number = scene.number
        self._limit = asked.consecutive or (1 if asked.do == "raise" else _ADVISED)
        self._by_loss = len(optimizers) == 1 and scene.replica() is None
        model = scene.bare_model() if "model" in scene.names else None
        named = model.named_parameters() if model is not None else ()
        self._names = {id(p): name for name, p in named}
        self._ring = scene.ring(NAN_STEPS)
        self._hidden: dict[int, HiddenGradients] = {}
        self._losses: dict[int, Any] = {}
        self.looked = self.found = 0
        self.last_step: int | None = None
        self.first_of_row: int | None = None
        self.in_a_row: dict[int, int] = {}

    def look(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step with its gradients.

        Raises:
            NonFiniteStep: That is what was asked for.
        """
        if is_capturing() or _is_left_to_scaler(optimizer):
            return
        parameters = parameters_of(optimizer)
        found = self._examine(optimizer, parameters)
        self.looked += 1
        if not (found.bad or self._is_bad(found.loss)):
            self.in_a_row[id(optimizer)] = 0
            return
        row = self._write(optimizer, parameters, found)
        if self._do == "raise" and row.values["consecutive"] >= self._limit:
            row.close("raised")
            raise NonFiniteStep(self._sentence(row, found, len(parameters)))
        if self.skips:
            self._hidden[id(optimizer)] = HiddenGradients(parameters, row)
        else:
            row.close("warned")

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        hidden = self._hidden.pop(id(optimizer), None)
        if hidden is not None:
            hidden.give_back()

    def advice(self) -> str | None:
        """What to do about many bad steps in a row."""
        most = max(self.in_a_row.values(), default=0)
        if most < self._limit or self.first_of_row is None:
            return None
        return (
            f"{most} in a row: go back to a checkpoint from before step {self.first_of_row}, with a"
            " lower learning rate"
        )

    def names_of(self, optimizers: list[Optimizer]) -> list[str]:
        """What optimizers are called."""
        return [self._recording.objects.optimizer_names.name_of(one) for one in optimizers]

    def _examine(self, optimizer: Any, parameters: list[Any]) -> _Found:
        """Which gradients are not finite, and the loss."""
        torch: Any = sys.modules["torch"]
        places, gradients = [], []
        for place, parameter in enumerate(parameters):
            gradient = numbers_of(parameter.grad, torch)
            if gradient is not None and gradient.numel():
                places.append(place)
                gradients.append(gradient)
        with torch.no_grad():
            odd = _not_finite(norms_of(gradients), torch)
            # The norm of large finite numbers can be infinite.
            bad = [places[n] for n in odd if not bool(torch.isfinite(gradients[n]).all())]
        return _Found(bad, self._loss(optimizer))

    def _loss(self, optimizer: Optimizer) -> float | None:
        """The loss of the last backward pass; on a device it has come with the gradients."""
        _, number = self._recording.objects.loss or (None, None)
        is_old = number is self._losses.get(id(optimizer))
        self._losses[id(optimizer)] = number
        return None if number is None or is_old else number.read()

    def _is_bad(self, loss: float | None) -> bool:
        """Whether the loss alone makes a step bad."""
        return self._by_loss and loss is not None and not math.isfinite(loss)

    def _write(self, optimizer: Optimizer, parameters: list[Tensor], found: _Found) -> _Row:
        """Count a bad step, and begin its row."""
        recording, names = self._recording, self._recording.names
        count = self.in_a_row.get(id(optimizer), 0) + 1
        if max(self.in_a_row.values(), default=0) == 0:
            self.first_of_row = recording.step
        self.in_a_row[id(optimizer)] = count
        self.found += 1
        self.last_step = recording.step
        values: dict[str, Any] = {
            "consecutive": count,
            "bad_parameters": len(found.bad),
            "optimizer": names.intern(type(optimizer).__name__),
        }
        if found.bad:
            values["parameter"] = names.intern(self._name(parameters, found.bad[0]))
        if found.loss is not None:
            values["loss"] = found.loss
        opening = {
            "step": recording.step,
            "action_id": self._number,
            "start_ns": time.perf_counter_ns(),
        }
        return _Row(self._ring, self._ring.open_named(opening), values)

    def _name(self, parameters: list[Tensor], place: int) -> str:
        known: str | None = self._names.get(id(parameters[place]))
        return known or f"parameter {place} of the optimizer"

    def _sentence(self, row: _Row, found: _Found, of: int) -> str:
        """What the exception says."""
        count = row.values["consecutive"]
        loss = "" if found.loss is None else f" (loss {found.loss:g})"
        bad = f"the gradients of {len(found.bad)} of {of} parameters are" if found.bad else "it is"
        again = f", {count} steps in a row" if count > 1 else ""
        return (
            f"step {self._recording.step}{loss}: {bad} not finite{again}; the optimizer has not"
            f" stepped. Raised by `probing act nan-guard raise`, action {self._number}"
        )


class _Row(NamedTuple):
    """A row of python.nan_steps that is not complete."""

    ring: Any
    word: int
    values: dict[str, Any]

    def close(self, outcome: str) -> None:
        """Complete it."""
        values = {**self.values, "outcome": NAN_OUTCOMES.index(outcome)}
        self.ring.close_named(self.word, DONE, values)


class _Closing(Protocol):
    """A row that is completed once it is known what has become of the step."""

    def close(self, outcome: str) -> None:
        """Complete it."""


class HiddenGradients:
    """The gradients of a step that is skipped: gone for its time, 0 after it."""

    def __init__(self, parameters: list[Tensor], row: _Closing) -> None:
        self._row = row
        self._gradients = [(p, p.grad) for p in parameters if p.grad is not None]
        self._versions = [(p, version_of(p)) for p in parameters]
        for parameter, _ in self._gradients:
            parameter.grad = None

    def give_back(self) -> None:
        """Put them back, as zeros, and write down whether the step was skipped."""
        with sys.modules["torch"].no_grad():
            for parameter, gradient in self._gradients:
                if parameter.grad is None:
                    parameter.grad = gradient.zero_()
        is_same = all(version_of(p) == version for p, version in self._versions)
        self._row.close("skipped" if is_same else "stepped")


class _Hooks(StepHooks):
    """The hooks of a guard, which can be asked how it stands."""

    def __init__(self, guard: _Guard, do: str) -> None:
        super().__init__(
            KIND,
            do,
            with_gradients=guard.look,
            after=guard.stepped,
            lets_out=(NonFiniteStep,),
        )
        self.looks = guard

    def told(self, *, by_name: bool) -> str:
        """How it stands, in words.

        Args:
            by_name: Whether to say whose steps it looks at.
        """
        looks = self.looks
        note = f"{self.value}: {looks.found} bad steps of {looks.looked}"
        if looks.last_step is not None:
            note += f", the last of them {looks.last_step}"
        who = f"{listed(looks.names_of(self.optimizers))}: " if by_name else ""
        parts = (who + note, looks.advice(), self.guard.problem)
        return "; ".join(part for part in parts if part)


def _skips(asked: NanGuard) -> bool:
    """Whether steps are skipped; those before the one that raises are, since else all are bad."""
    return asked.do == "skip" or (asked.do == "raise" and (asked.consecutive or 1) > 1)


def _report(in_force: list[StepHooks]) -> SourceReport | None:
    """How the guards stand, for `status`; None where there is none."""
    guards = [one for one in list(in_force) if isinstance(one, _Hooks)]
    if not guards:
        return None
    notes = [one.told(by_name=len(guards) > 1) for one in guards]
    states = [_state(one) for one in guards]
    state = next(state for state in ("failed", "on", "off") if state in states)
    faults = sum(one.guard.faults for one in guards)
    return SourceReport(KIND, state, None, faults, "; ".join(notes))


def _state(hooks: StepHooks) -> str:
    return "failed" if hooks.guard.has_failed else "on" if hooks.is_on else "off"


def _is_left_to_scaler(optimizer: Optimizer) -> bool:
    """Whether a fused step is going to be left out, because the scaler has found an overflow."""
    overflow = getattr(optimizer, "found_inf", None)
    return overflow is not None and bool(overflow)


def numbers_of(gradient: Any, torch: ModuleType) -> Any:
    """The numbers of a gradient that are here; None where they cannot be read."""
    if gradient is None:
        return None
    here = getattr(gradient, "_local_tensor", gradient)  # of a DTensor, what this rank has of it
    here = here._values() if here.is_sparse else here
    if type(here) is torch.Tensor and here.is_complex():
        here = torch.view_as_real(here.detach().resolve_conj())
    return here if is_plain(here, torch) else None


def _not_finite(norms: list[Tensor], torch: ModuleType) -> list[int]:
    """Which of some norms are not finite; waits once for each device."""
    devices: dict[Any, list[int]] = {}
    for number, norm in enumerate(norms):
        devices.setdefault(norm.device, []).append(number)
    odd = []
    for numbers in devices.values():
        stacked = torch.stack([norms[n].to(torch.float32) for n in numbers])
        flags = torch.isfinite(stacked).tolist()
        odd += [n for n, is_finite in zip(numbers, flags, strict=True) if not is_finite]
    return sorted(odd)
