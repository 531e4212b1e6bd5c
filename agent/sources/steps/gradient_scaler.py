"""What a gradient scaler (AMP) does to a step: its scale, and the steps that it leaves out.

Rules of this file: runs in the training thread, in the place of three methods of torch's
``GradScaler``; keeps no tensor alive but the scales of the last losses, which are the scaler's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..accelerator import Accelerator
from ..numbers.number import Number, read_number
from ..shared.recording import Recording
from ..shared.scaled import Scaled
from ..stand_in import StandIn, StandInSource
from ..torch_types import Node, Optimizer
from .left_out import LeftOut

_ROUNDS = 3
"""So often in a row a step is left out before what wants the end of one is let in all the same."""


class GradientScaler(StandInSource):
    """Stands in for ``GradScaler.scale``, ``GradScaler.step`` and ``GradScaler.update``.

    Attributes:
        scaled: What was scaled since the last update.
    """

    def __init__(self, recording: Recording, accelerator: Accelerator, left_out: LeftOut) -> None:
        self._recording = recording
        self._left_out = left_out
        self._has_left = False  # since the last update
        self._first, self._rounds = 0, 0  # that was left out in the step in progress, how often
        self._accelerator = accelerator
        self.scaled = Scaled()
        module: Any = sys.modules.get("torch.amp.grad_scaler")
        cls = getattr(module, "GradScaler", None)
        around = {
            "scale": self._around_scale,
            "step": self._around_step,
            "update": self._around_update,
        }
        methods = [StandIn(cls, name, call) for name, call in around.items()] if cls else []
        super().__init__("gradient scaler", methods, recording.events)

    def stop(self) -> None:
        """Stand in no more."""
        super().stop()
        self.scaled.scales.clear()

    def unscaled(self, number: Number, node: Node | None) -> tuple[Number | None, bool]:
        """A loss without its scale, also where it was divided or added to others behind that.

        Args:
            node: What has made it.

        Returns:
            The number; None where only parts of it were scaled, or the scale is not known. And
            whether it is the script's own, with no scale in it.
        """
        if node is None or not self.scaled.scales:
            return number, True
        found, is_whole = self.scaled.scale_in(node)
        if found is None:
            return number, True
        scale = self._recording.rows.amp_scale = read_number(found, self._accelerator)
        return (number.over(scale) if is_whole and scale is not None else None), False

    def _before_step(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer is about to step; one that is fused leaves out a step on the device."""
        found = getattr(optimizer, "found_inf", None)
        if found is not None and self._is_trainings():
            self.guard.run(self._note_found, found)

    def _note_found(self, found: Any) -> None:
        """Have it told whether gradients have overflowed."""
        self._recording.rows.found_inf = read_number(found, self._accelerator)

    def _is_trainings(self) -> bool:
        """Whether the calling thread is that whose steps are counted."""
        recording = self._recording
        return recording.training_thread in {0, recording.threads.state.native_id}

    def _around_scale(
        self, original: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """A loss is scaled."""
        result = original(*args, **kwargs)
        self.guard.run(self._note, args, result)
        return result

    def _around_step(
        self, original: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """An optimizer steps, unless its gradients have overflowed."""
        self.guard.run(self._step_begins, args[0])
        result = original(*args, **kwargs)
        self.guard.run(self._step_ends, args[0], *args[1:2], *kwargs.values())
        return result

    def _step_begins(self, scaler: Any) -> None:
        """Nothing has stepped by this call so far, nor was left out in the step in progress."""
        rows = self._recording.rows
        if self._before is None:  # only what it steps leaves out a step on the device
            self._hear_steps(before=self._before_step)
        if scaler.is_enabled() and self._is_trainings() and not rows.by_hand:
            rows.has_stepped, rows.skipped = False, rows.skipped or 0

    def _step_ends(self, scaler: Any, optimizer: Any, *_: object) -> None:
        """It has come back: an optimizer that has not stepped was left out."""
        recording = self._recording
        rows = recording.rows
        if rows.by_hand or rows.has_stepped or recording.awaits_step:
            return
        is_optimizer = isinstance(optimizer, sys.modules["torch"].optim.Optimizer)
        if is_optimizer and scaler.is_enabled() and self._is_trainings():
            self._has_left = True
            rows.skipped = (rows.skipped or 0) + 1
            is_end = self._left_out.came(optimizer, recording.threads.state)
            if is_end or self._goes_round(id(optimizer)):
                recording.safe_points.step_ended()

    def _goes_round(self, optimizer: int) -> bool:
        """Whether the script goes on without steps: then nothing else comes by a safe point."""
        if self._recording.rows.skipped == 1:
            self._first, self._rounds = optimizer, 0
        if optimizer != self._first:
            return False
        self._rounds += 1
        return self._rounds >= _ROUNDS

    def _around_update(
        self, original: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """The scaler has seen whether its step was left out; does so once per step."""
        self.guard.run(self._ask, args[0])
        result = original(*args, **kwargs)
        self.guard.run(self._count, args[0])
        return result

    def _note(self, args: tuple[Any, ...], result: object) -> None:
        """Remember which tensors were scaled, and by what."""
        if not (args[0].is_enabled() and self._is_trainings()):
            return
        for one in result if isinstance(result, list | tuple) else (result,):
            if type(one) is sys.modules["torch"].Tensor:
                self.scaled.add(one, args[0]._scale)

    def _ask(self, scaler: Any) -> None:
        """Where no optimizer ends a step, only the scaler itself knows whether it was left out."""
        if not (self._recording.rows.by_hand and scaler.is_enabled() and self._is_trainings()):
            return
        states = scaler._per_optimizer_states.values()
        found = [one for state in states for one in state["found_inf_per_device"].values()]
        if len(found) == 1:
            self._note_found(found[0])

    def _count(self, scaler: Any) -> None:
        """A step of the optimizer that was left out leaves the step in progress where it was."""
        if not scaler.is_enabled() or not self._is_trainings():
            return  # it passes everything through, or is another thread's
        self.scaled.scales.clear()
        rows = self._recording.rows
        is_known, self._has_left = rows.has_stepped or self._has_left, False
        rows.skipped = (rows.skipped or 0) + (0 if is_known else 1)
        rows.has_stepped = False
