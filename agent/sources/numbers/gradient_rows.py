"""Writes python.gradients: each parameter's gradient, as the optimizer is about to use it.

Rules of this file: loaded only when somebody asks for it. Runs in the training thread, around the
step of an optimizer: before it, or behind it where the step computes its gradients itself; and
where no optimizer of torch steps, as a backward pass has ended. Where the steps were asked for one
by one, the device is waited for; where they are sampled all the time it never is: then numbers
arrive later, and their rows with them.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from ....ring.format import DONE, NULL_BOOL, NULL_FLOAT, NULL_NAME
from ....ring.writer import RingWriter
from ....safety.guard import Guard
from ..accelerator import Accelerator, PendingNumbers, is_capturing
from ..shared.recording import Recording
from ..stand_in import PlainSource
from ..steps.ends.hand_steps import HandSteps
from ..steps.rows.losses import clip_factor
from ..torch_types import Optimizer, Tensor
from .gradient_steps import GradientSteps
from .gradient_tensors import (
    Gradients,
    Names,
    copies_of,
    fill_elements,
    fill_norms,
    gradients_of,
    has_closure,
    has_lost_squares,
    is_plain,
    norms_of,
    parameters_of,
    readable,
    subnormal_shares,
)
from .kept_passes import KeptPasses
from .left_passes import LeftPasses
from .pass_gradients import gradients_of_pass

_LONGEST_QUEUE = 16

Values = dict[str, Any]


class _Late(NamedTuple):
    """Rows whose norms are on their way."""

    pending: PendingNumbers
    words: list[int]
    values: list[Values]


class _Copy(NamedTuple):
    """A parameter as it was before the step, and the row of its gradient."""

    parameter: Any
    before: Any
    word: int
    values: Values


class _User(NamedTuple):
    """Who is to use gradients.

    Attributes:
        name: The number of its class name.
        places: What parameters of no known module are called, by ``id(parameter)``.
        scale: What the gradients are multiplied with, as a tensor; None for nothing.
        state: What the optimizer keeps, by parameter.
    """

    name: int
    places: Mapping[int, str]
    scale: Any = None
    state: Mapping[Any, Any] = {}


class GradientRows(PlainSource):
    """Samples the gradients of steps.

    Attributes:
        every: One step in so many is sampled; 0 for none.
    """

    def __init__(
        self, recording: Recording, ring: RingWriter, accelerator: Accelerator, hand: HandSteps
    ) -> None:
        """Begin with nothing to sample.

        Args:
            hand: Says whether it is a training without an optimizer of torch.
        """
        self.every = 0
        self._recording = recording
        self._ring = ring
        self._accelerator = accelerator
        self._hand = hand
        self._armed: GradientSteps | None = None
        self._from_step = 0
        self._late: deque[_Late] = deque(maxlen=_LONGEST_QUEUE)
        self._kept, self._left = KeptPasses(), LeftPasses()
        self._names = Names(recording)
        self._forget()
        self.guard = Guard("gradients", self.stop)

    def _forget(self) -> None:
        """Keep nothing of a step."""
        self._weights: dict[int, Any] = {}  # copies, by id(parameter)
        self._copies: list[_Copy] = []
        self._by_pass: dict[int, int] = {}  # words of rows, by id(parameter)
        self._kept.clear()
        self._passes = 0
        self._passes_before: int | None = None  # of the step of an optimizer with a closure

    @property
    def is_on(self) -> bool:
        """Whether it looks at steps."""
        return self._before in self._recording.events.before_step

    @property
    def has_stepped(self) -> bool:
        """Whether a training step has ended, now or before."""
        return self._recording.safe_points.stepping

    def start(self) -> None:
        """Look at the steps from now on."""
        self.stop()
        events = self._recording.events
        events.before_step += (self._before,)
        events.after_step += (self._after,)
        events.before_backward += (self._begins,)
        events.after_backward += (self._passed,)

    def stop(self) -> None:
        """Look at none any more."""
        self._recording.events.forget(self._before, self._after, self._begins, self._passed)
        self._forget()
        self._late.clear()

    def arm(self, steps: GradientSteps) -> None:
        """Write the rows of the next steps.

        Of several optimizers some may have stepped already: then from the next step on.
        """
        are_several = len(self._recording.objects.counted_optimizers()) > 1
        self._from_step = self._recording.step + are_several
        self._kept, self._left, self._armed = KeptPasses(), LeftPasses(), steps
        self._kept.knows_step = not self._recording.rows.has_passes  # looked at once it counts

    def disarm(self, steps: GradientSteps) -> None:
        """Write no more for these."""
        if self._armed is steps:
            self._kept, self._left, self._armed = KeptPasses(), LeftPasses(), None
        self._recording.safe_points.end_job(steps)

    def step_ended(self) -> None:
        """A training step has ended, by whatever."""
        self._by_pass.clear()
        self._kept.clear()
        self._note_updates()

    def _before(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer is about to step."""
        if self._is_wanted():
            closes = has_closure(args, kwargs)
            self._run(self._await_closure if closes else self._sample, optimizer)

    def _after(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer has stepped; one with a closure is sampled if awaited from its beginning."""
        if self._passes_before is not None and has_closure(args, kwargs):
            if self._is_wanted():
                self._run(self._sample, optimizer)
            self._passes_before = None
        if self._copies:
            self.guard.run(self._note_updates)

    def _begins(self, args: tuple[Any, ...]) -> None:
        if self._counts_passes() and not self._recording.safe_points.at_work.is_transformed():
            self._run(self._count_pass, self._kept.begins, partial(self._left.begins, args[0]))
            if self._armed is not None:
                self.guard.run(self._armed.backward_begins, *args[:1])

    def _passed(self, args: tuple[object, ...], result: object) -> None:
        """A backward pass of the training thread has ended."""
        self._passes += 1
        armed = self._armed
        if armed is not None and self._recording.safe_points.at_work.is_transformed():
            self.guard.run(armed.transformed)
        elif self._hand.is_on and self._is_wanted():
            self._run(self._sample_pass, args, result)
        elif self._counts_passes():
            self._run(self._count_pass, self._kept.passed, self._left.passed)

    def _counts_passes(self) -> bool:
        return self._armed is not None and self._passes_before is None and self._is_wanted()

    def _count_pass(self, kept: Callable[..., None], left: Callable[..., None]) -> None:
        """Have it noted what a backward pass does to the gradients of all optimizers."""
        if is_capturing():
            return
        objects = self._recording.objects
        name_of = objects.optimizer_names.name_of
        groups = {name_of(one): parameters_of(one) for one in objects.counted_optimizers()}
        for parameters in groups.values():
            kept(parameters)
        left(groups)

    def _is_wanted(self) -> bool:
        """Whether the calling thread's gradients of this step are to be written."""
        recording, every = self._recording, self.every
        if self._armed is not None:
            if recording.step < self._from_step:
                return False
        elif every <= 0 or recording.step % every:
            return False
        return recording.threads.state.native_id == recording.training_thread

    def _run(self, work: Callable[..., None], *args: object) -> None:
        """Do a part of it, under the guard."""
        armed, faults = self._armed, self.guard.faults
        self.guard.run(work, *args)
        if armed is not None and self.guard.faults > faults:
            armed.failed(self.guard.last.strip().rpartition("\n")[2])

    def _await_closure(self, optimizer: Optimizer) -> None:
        """An optimizer is about to compute its gradients: they are there once it has stepped."""
        self._passes_before = self._passes
        if self._armed is not None:
            trained = [p for p in parameters_of(optimizer) if p.requires_grad]
            self._weights = copies_of(trained)

    def _sample(self, optimizer: Optimizer) -> None:
        if is_capturing():
            return
        places = {
            id(parameter): f"param_groups.{group}.params.{place}"
            for group, found in enumerate(optimizer.param_groups)
            for place, parameter in enumerate(found["params"])
        }
        name = self._recording.names.intern(type(optimizer).__name__)
        scale = getattr(optimizer, "grad_scale", None)  # of one that unscales in its step itself
        user = _User(name, places, scale, getattr(optimizer, "state", {}))
        self._left.steps(self._recording.objects.optimizer_names.name_of(optimizer))
        self._write(gradients_of(parameters_of(optimizer)), user)
        before, self._passes_before, self._weights = self._passes_before, None, {}
        if self._armed is not None and before is not None:
            self._armed.computed = self._passes - before

    def _sample_pass(self, args: tuple[object, ...], result: object) -> None:
        """Write the rows of a pass's gradients; those of a later one in the step replace them."""
        found = gradients_of_pass(args, result)
        if found.pairs:
            self._copies.clear()
            self._write(readable(found.pairs), _User(NULL_NAME, found.places), by_pass=True)

    def _write(self, found: Gradients, user: _User, *, by_pass: bool = False) -> None:
        torch: Any = sys.modules["torch"]
        armed = self._armed
        self._write_late()
        # At most what the ring holds: the rows of one step must not overwrite each other.
        pairs = found.pairs[: (self._ring.slot_mask >> 2) + 1]
        if armed is not None and not self._weights:
            self._weights = copies_of([parameter for parameter, _ in pairs])
        words, values = self._open(pairs, user, by_pass=by_pass)
        with torch.no_grad():
            numbers = self._norms(torch, pairs, user.scale)
            if isinstance(numbers, list):
                fill_norms(values, numbers)
                if armed is not None:
                    self._fill_unclipped(pairs, values)
                    self._fill_passes(pairs, values)
                    for pair, row in zip(pairs, values, strict=True):
                        row.update(subnormal_shares(*pair, user.state))
                self._look_at_elements(pairs, values, numbers[-1])
            elif numbers is not None:
                self._late.append(_Late(numbers, words, values))
            for word, row in zip(words, values, strict=True):
                self._ring.close_named(word, DONE, row)
        for (parameter, _), word, row in zip(pairs, words, values, strict=True):
            before = self._weights.pop(id(parameter), None)
            if before is not None and row["weight_norm"] > 0:
                self._copies.append(_Copy(parameter, before, word, row))
        if armed is not None:
            armed.wrote(self._recording.step, len(words), found.left_out)

    def _open(
        self, pairs: Sequence[tuple[Tensor, Tensor]], user: _User, *, by_pass: bool
    ) -> tuple[list[int], list[Values]]:
        """Open the rows; returns their words and what is known without a look at the numbers."""
        torch: Any = sys.modules["torch"]
        intern, now = self._recording.names.intern, time.perf_counter_ns()
        names = self._names.of([parameter for parameter, _ in pairs], self._armed)
        words: list[int] = []
        values: list[Values] = []
        for parameter, _ in pairs:
            word = self._by_pass.get(id(parameter))  # an earlier pass of the step has opened it
            words.append(self._ring.open_row(now, self._recording.step) if word is None else word)
            if by_pass:
                self._by_pass[id(parameter)] = words[-1]
            path, root = names.get(id(parameter)) or (user.places[id(parameter)], "")
            known: Values = {"parameter": intern(path), "optimizer": user.name}
            known["numel"] = parameter.numel()
            if root:
                known["root"] = intern(root)
            if not is_plain(parameter, torch):
                known["weight_norm"] = NULL_FLOAT
            values.append(known)
        return words, values

    def _norms(
        self, torch: ModuleType, pairs: Sequence[tuple[Tensor, Tensor]], scale: Any
    ) -> list[float] | PendingNumbers | None:
        """Norms of the gradients, then of the weights, then the scale; None if on several devices.

        They are waited for on a CPU, and where the steps were asked for.
        """
        if not pairs:
            return [1.0]
        is_armed = self._armed is not None
        weights = [
            self._weights.get(id(parameter), parameter) if is_plain(parameter, torch) else gradient
            for parameter, gradient in pairs
        ]
        found = norms_of([gradient for _, gradient in pairs] + weights)
        found.append(found[0].new_ones(()) if scale is None else scale.reshape(()))
        devices = {number.device for number in found}
        if {device.type for device in devices} == {"cpu"}:
            return [number.item() for number in found]
        if len(devices) > 1:
            return [number.item() for number in found] if is_armed else None
        stacked = torch.stack([number.float() for number in found])
        return stacked.tolist() if is_armed else self._accelerator.copy_numbers(stacked)

    def _fill_unclipped(self, pairs: Sequence[tuple[Tensor, Tensor]], values: list[Values]) -> None:
        """Fill in the norms before the script's clipping, where it has clipped all of them."""
        rows, clip = self._recording.rows, self._recording.objects.clip
        norm = rows.norm.read() if rows.norm is not None else None
        if norm is None or rows.max_norm is None or clip is None or clip.tensors < len(pairs):
            return
        own = {id(parameter) for parameter, _ in pairs}
        if own.issuperset(end.identity for end in clip.ends):
            factor = clip_factor(norm, rows.max_norm)
            for row in values:
                row["unclipped_norm"] = row["norm"] / factor if factor else NULL_FLOAT

    def _fill_passes(self, pairs: Sequence[tuple[Tensor, Tensor]], values: list[Values]) -> None:
        """Fill in of which backward passes each gradient is."""
        for (parameter, gradient), row in zip(pairs, values, strict=True):
            counted = self._kept.take(parameter, gradient)
            if counted is not None:
                row["passes"], row["kept_passes"] = counted.passes, counted.kept
                row["has_older"] = NULL_BOOL if counted.has_older is None else counted.has_older
            if name := self._left.take(parameter, gradient):
                row["left_by"] = self._recording.names.intern(name)

    def _look_at_elements(
        self, pairs: Sequence[tuple[Tensor, Tensor]], values: list[Values], scale: float
    ) -> None:
        """Count elements: all that were asked for, else those of norms that are not finite."""
        both = [(gradient, row) for (_, gradient), row in zip(pairs, values, strict=True)]
        fill_elements([o for o in both if self._armed or not math.isfinite(o[1]["norm"])], scale)
        for gradient, row in both:
            if has_lost_squares(row, scale):
                row["norm"] = float(gradient.double().norm()) / scale

    def _note_updates(self) -> None:
        """Complete the rows with what the step has changed."""
        torch: Any = sys.modules["torch"]
        copies, self._copies = self._copies, []
        with torch.no_grad():
            for copy in copies:
                copy.before.sub_(copy.parameter.detach())
            norms = norms_of([copy.before for copy in copies])
            for copy, norm in zip(copies, norms, strict=True):
                copy.values["update_ratio"] = norm.item() / copy.values["weight_norm"]
                self._ring.close_named(copy.word, DONE, copy.values)

    def _write_late(self) -> None:
        """Complete the rows whose numbers have come, in order."""
        while self._late and self._late[0].pending.is_here():
            late = self._late.popleft()
            fill_norms(late.values, late.pending.values())
            for word, row in zip(late.words, late.values, strict=True):
                self._ring.close_named(word, DONE, row)
