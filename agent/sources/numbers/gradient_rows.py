"""Writes python.gradients: each parameter's gradient, as the optimizer is about to use it.

Rules of this file: loaded only when somebody asks for it. Runs in the training thread, around the
step of an optimizer. Where the steps were asked for one by one, the device is waited for; where
they are sampled all the time it never is: then numbers arrive later, and their rows with them.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from typing import Any, NamedTuple

from ....ring.format import DONE, NULL_FLOAT, NULL_INT
from ....ring.writer import RingWriter
from ....safety.guard import Guard
from ...on_demand.armed_job import ArmedJob
from ..accelerator import Accelerator, PendingNumbers, free_bytes, is_capturing
from ..calls.module_names import outermost, walk
from ..steps.losses import clip_factor
from ..steps.recording import Recording
from .gradient_tensors import gradients_of, has_closure, is_plain, norms_of, parameters_of

_MOST_COPIED = 256 << 20
_PART_OF_FREE = 8
_PIECE = 1 << 24
_LONGEST_QUEUE = 16

Values = dict[str, Any]


class GradientSteps(ArmedJob):
    """Some steps whose gradients were asked for.

    Attributes:
        done: Steps whose rows are written.
        left_out: Gradients of the last step that could not be read.
    """

    what = "gradients"

    def __init__(self, rows: GradientRows, steps: int, number: int) -> None:
        super().__init__(number, steps)
        self.left_out = 0
        self._rows = rows

    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        if self._is_without_optimizer():
            return ("no optimizer has stepped since the agent came",)
        if not self.left_out:
            return ()
        return (
            f"{self.left_out} gradients were left out: sparse, or of a subclass of Tensor such as"
            " DTensor",
        )

    def step_ended(self) -> bool:
        """See `StepEndJob`; calls of a model alone bring it no nearer to its end."""
        moved_s = self.moved_s
        is_over = super().step_ended()
        if self._is_without_optimizer():
            self.moved_s = moved_s
        return is_over

    def wrote(self, step: int, rows: int, left_out: int) -> None:
        """An optimizer's rows of a step are written."""
        self.state = "armed"
        self.saw(step)
        self.found += rows
        self.left_out = left_out

    def _work(self) -> None:
        """Count, and end with the last."""
        if self.state == "armed" and self.first_step is not None and self.last_step is not None:
            self.done = self.last_step - self.first_step + 1
            if self.done >= self.steps:
                self.end()

    def _is_without_optimizer(self) -> bool:
        """Whether it waits, and there was no step of an optimizer so far."""
        return self.state == "waiting" and not self._rows.has_optimizer

    def _let_go(self) -> None:
        """No more rows."""
        self._rows.disarm(self)


class _Late(NamedTuple):
    """Rows whose norms are on their way."""

    pending: PendingNumbers
    words: list[int]
    values: list[Values]


class _Copy(NamedTuple):
    """A parameter as it was before the step."""

    parameter: Any
    before: Any
    word: int
    values: Values


class GradientRows:
    """Samples the gradients of steps.

    Attributes:
        every: One step in so many is sampled; 0 for none.
    """

    def __init__(self, recording: Recording, ring: RingWriter, accelerator: Accelerator) -> None:
        self.every = 0
        self._recording = recording
        self._ring = ring
        self._accelerator = accelerator
        self._armed: GradientSteps | None = None
        self._late: deque[_Late] = deque(maxlen=_LONGEST_QUEUE)
        self._copies: list[_Copy] = []
        self.guard = Guard("gradients", self.stop)

    @property
    def is_on(self) -> bool:
        """Whether it looks at steps."""
        return self._before in self._recording.before_step

    @property
    def has_optimizer(self) -> bool:
        """Whether an optimizer has stepped, now or before."""
        return self._recording.safe_points.stepping

    def start(self) -> None:
        """Look at the steps from now on."""
        self.stop()
        self._recording.before_step += (self._before,)
        self._recording.after_step += (self._after,)

    def stop(self) -> None:
        """Look at none any more."""
        recording = self._recording
        recording.before_step = tuple(k for k in recording.before_step if k != self._before)
        recording.after_step = tuple(k for k in recording.after_step if k != self._after)
        self._copies.clear()
        self._late.clear()

    def close(self) -> None:
        """Stop for good."""
        self.stop()

    def remains(self) -> list[str]:
        """Nothing stays in place."""
        return []

    def arm(self, steps: GradientSteps) -> None:
        """Write the rows of the next steps."""
        self._armed = steps

    def disarm(self, steps: GradientSteps) -> None:
        """Write no more for these."""
        if self._armed is steps:
            self._armed = None

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An optimizer is about to step."""
        armed, every, step = self._armed, self.every, self._recording.step
        if armed is None and (every <= 0 or step % every):
            return
        thread = self._recording.threads.state
        if thread.native_id == self._recording.training_thread:
            faults = self.guard.faults
            self.guard.run(self._sample, optimizer, armed, args, kwargs)
            if armed is not None and self.guard.faults > faults:
                armed.failed(self.guard.last.strip().rpartition("\n")[2])

    def _after(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An optimizer has stepped."""
        if self._copies:
            copies, self._copies = self._copies, []
            self.guard.run(self._note_updates, copies)

    def _sample(
        self,
        optimizer: Any,
        armed: GradientSteps | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Write the rows of one optimizer's gradients, unless it computes them itself."""
        torch: Any = sys.modules["torch"]
        if has_closure(args, kwargs) or is_capturing():
            return
        self._write_late()
        pairs, left_out = gradients_of(parameters_of(optimizer))
        # At most what the ring holds: the rows of one step must not overwrite each other.
        pairs = pairs[: (self._ring.slot_mask >> 2) + 1]
        scale = getattr(optimizer, "grad_scale", None)  # of one that unscales in its step itself
        words, values = self._open(pairs, optimizer)
        with torch.no_grad():
            numbers = self._norms(torch, pairs, scale, is_armed=armed is not None)
            if isinstance(numbers, list):
                _fill_norms(values, numbers)
                if armed is not None:
                    self._fill_unclipped(pairs, values)
                self._look_at_elements(pairs, values, numbers[-1], is_armed=armed is not None)
            elif numbers is not None:
                self._late.append(_Late(numbers, words, values))
            for word, row in zip(words, values, strict=True):
                self._ring.close_named(word, DONE, row)
            if armed is not None:
                self._copy(torch, pairs, words, values)
        if armed is not None:
            armed.wrote(self._recording.step, len(words), left_out)

    def _open(self, pairs: list[tuple[Any, Any]], optimizer: Any) -> tuple[list[int], list[Values]]:
        """Open the rows; returns their words and what is known without a look at the numbers."""
        torch: Any = sys.modules["torch"]
        intern, now = self._recording.names.intern, time.perf_counter_ns()
        names, name = self._names(), intern(type(optimizer).__name__)
        places = {
            id(parameter): f"param_groups.{group}.params.{place}"
            for group, found in enumerate(optimizer.param_groups)
            for place, parameter in enumerate(found["params"])
        }
        words = [self._ring.open_row(now, self._recording.step) for _ in pairs]
        values: list[Values] = []
        for parameter, _ in pairs:
            path, root = names.get(id(parameter), (places[id(parameter)], ""))
            known: Values = {"parameter": intern(path), "optimizer": name}
            known["numel"] = parameter.numel()
            if root:
                known["root"] = intern(root)
            if not is_plain(parameter, torch):
                known["weight_norm"] = NULL_FLOAT
            values.append(known)
        return words, values

    def _names(self) -> dict[int, tuple[str, str]]:
        """By ``id(parameter)``: its name, and the class of its root."""
        found: dict[int, tuple[str, str]] = {}
        for root in outermost(self._recording.roots.alive()):
            root_class = self._recording.models.root_text(root)
            for path, module in walk(root, "", set()):
                for name, parameter in list(module._parameters.items()):
                    place = f"{path}.{name}" if path else name
                    found.setdefault(id(parameter), (place, root_class))
        return found

    def _norms(
        self, torch: Any, pairs: list[tuple[Any, Any]], scale: Any, *, is_armed: bool
    ) -> list[float] | PendingNumbers | None:
        """Norms of the gradients, then of the weights, then the scale; None if on several devices.

        They are waited for on a CPU, and where the steps were asked for.
        """
        if not pairs:
            return [1.0]
        weights = [parameter if is_plain(parameter, torch) else g for parameter, g in pairs]
        found = norms_of([gradient for _, gradient in pairs] + weights)
        found.append(found[0].new_ones(()) if scale is None else scale.reshape(()))
        devices = {number.device for number in found}
        if {device.type for device in devices} == {"cpu"}:
            return [number.item() for number in found]
        if len(devices) > 1:
            return [number.item() for number in found] if is_armed else None
        stacked = torch.stack([number.float() for number in found])
        return stacked.tolist() if is_armed else self._accelerator.copy_numbers(stacked)

    def _fill_unclipped(self, pairs: list[tuple[Any, Any]], values: list[Values]) -> None:
        """Fill in the norms before the script's clipping, where it has clipped all of them."""
        rows, clip = self._recording.rows, self._recording.clip
        norm = rows.norm.read() if rows.norm is not None else None
        if norm is None or rows.max_norm is None or clip is None or clip.tensors < len(pairs):
            return
        own = {id(parameter) for parameter, _ in pairs}
        if all(id(reference()) in own for reference in clip.ends):
            factor = clip_factor(norm, rows.max_norm)
            for row in values:
                row["unclipped_norm"] = row["norm"] / factor if factor else NULL_FLOAT

    def _look_at_elements(
        self, pairs: list[tuple[Any, Any]], values: list[Values], scale: float, *, is_armed: bool
    ) -> None:
        """Count elements: all that were asked for, else those of norms that are not finite."""
        for (_, gradient), row in zip(pairs, values, strict=True):
            if is_armed or not math.isfinite(row["norm"]):
                row.update(_elements(gradient, scale))
            if math.isinf(row["norm"]) and row["inf_count"] == row["nan_count"] == 0:  # too large
                row["norm"] = float(gradient.double().norm()) / scale

    def _copy(
        self, torch: Any, pairs: list[tuple[Any, Any]], words: list[int], values: list[Values]
    ) -> None:
        """Copy the weights, as far as memory allows, for what the step changes in them."""
        room = _MOST_COPIED
        free = free_bytes(pairs[0][0].device) if pairs else None
        if free is not None:
            room = min(room, free // _PART_OF_FREE)
        for (parameter, _), word, row in zip(pairs, words, values, strict=True):
            weight = row["weight_norm"]
            if is_plain(parameter, torch) and parameter.nbytes <= room and weight > 0:
                room -= parameter.nbytes
                self._copies.append(_Copy(parameter, parameter.detach().clone(), word, row))

    def _note_updates(self, copies: list[_Copy]) -> None:
        """Complete the rows with what the step has changed."""
        torch: Any = sys.modules["torch"]
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
            _fill_norms(late.values, late.pending.values())
            for word, row in zip(late.words, late.values, strict=True):
                self._ring.close_named(word, DONE, row)


def _fill_norms(values: list[Values], numbers: list[float]) -> None:
    """Put norms into their rows; the last number is the scale of the gradients."""
    count, scale = len(values), numbers[-1]
    norms, weights = numbers[:count], numbers[count : 2 * count]
    for row, norm, weight in zip(values, norms, weights, strict=True):
        row["norm"] = norm / scale
        row.setdefault("weight_norm", weight)  # NULL already, where it cannot be read


def _elements(gradient: Any, scale: float) -> Values:
    """What a look at every element tells; in pieces, because each makes copies."""
    torch: Any = sys.modules["torch"]
    nans = infs = zeros = 0
    largest: float | None = None
    for piece in _pieces(gradient):
        finite = torch.isfinite(piece)
        nans += int(torch.isnan(piece).sum())
        infs += int(torch.isinf(piece).sum())
        zeros += piece.numel() - int(torch.count_nonzero(piece))
        if bool(finite.any()):
            here = float(torch.where(finite, piece, 0).abs().max())
            largest = here if largest is None else max(largest, here)
    count = gradient.numel()
    return {
        "max_abs": NULL_FLOAT if largest is None else largest / scale,
        "nan_count": nans if count else NULL_INT,
        "inf_count": infs if count else NULL_INT,
        "zero_share": zeros / count if count else NULL_FLOAT,
    }


def _pieces(tensor: Any) -> Any:
    """A large tensor, piece by piece, without a copy."""
    if tensor.dim() == 0 or tensor.numel() <= _PIECE:
        return [tensor]
    return tensor.split(max(1, _PIECE * tensor.shape[0] // tensor.numel()))
