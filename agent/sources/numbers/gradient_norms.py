"""The norm of a step's gradients: the script's own, or one that is taken now and then.

Rules of this file: runs in the training thread. In the place of the function that
``torch.nn.utils.clip_grad_norm_`` hands its norm to, so that a script which has imported that one
by name is seen, too, and around FSDP1's own, which asks all ranks; where a script does not clip, in
the hook before the optimizer's step. Nothing waits for a device or asks another rank, and what the
norm costs decides how often it is taken.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ..accelerator import Accelerator, is_capturing
from ..shared.interval import Interval
from ..shared.objects import Clip
from ..shared.recording import Recording
from ..shared.versions import as_seen
from ..stand_in import StandIn, StandInSource
from ..torch_types import Optimizer
from .gradient_tensors import (
    gradients_of,
    has_closure,
    is_flat_shard,
    norms_of,
    parameters_of,
)
from .number import read_number

_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
_EUCLIDEAN = 2.0
_PART_OF_BUDGET = 0.05
_FIRST = 2
"""So many steps are over before the first of our own: one alone is longer than those to come."""
_BYTES_PER_NS = 200.0
"""How fast a device reads at the least; its own clock is not asked, because that would wait."""


class GradientNorms(StandInSource):
    """Takes the norm that the script clips by, or one of its own."""

    def __init__(
        self,
        recording: Recording,
        accelerator: Accelerator,
        share: float,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Prepare.

        Args:
            share: The part of a step that all recording may cost.
        """
        self._recording = recording
        self._accelerator = accelerator
        self._clock = clock
        self._interval = Interval(share * _PART_OF_BUDGET)
        self._next = 0  # the step in which one of our own is due
        self._is_warm = False
        self._kind: Any = _EUCLIDEAN
        self._apart: int | None = None  # the step in which something was clipped by another norm
        self._parted = -2  # that in which several parts were clipped last
        self._is_partial = False  # the norm of the step in progress
        module = sys.modules["torch.nn.utils.clip_grad"]
        self._sharded_clip: StandIn | None = None
        taken = StandIn(module, "_get_total_norm", self._around_norm)
        clip, looks = StandIn(module, "_clip_grads_with_norm_", self._around), recording.events
        super().__init__("gradient norms", [taken, clip], looks, before_step=self._before_step)

    def start(self) -> None:
        """Take norms from now on."""
        super().start()
        self._next = self._recording.step + _FIRST
        self._meet_sharded()

    def _meet_sharded(self) -> None:
        """See FSDP1's own clipping, once the program has FSDP1."""
        module = sys.modules.get(_FSDP1)
        kind = getattr(module, "FullyShardedDataParallel", None)
        if kind is None:  # none, or it is being imported
            return
        if self._sharded_clip is None:
            self._sharded_clip = StandIn(kind, "clip_grad_norm_", self._around_sharded)
            self._methods.append(self._sharded_clip)
        self._sharded_clip.start()

    def _around_sharded(
        self, original: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """FSDP1 clips by the norm of all ranks' gradients, which it gives back."""
        norm = original(*args, **kwargs)
        self._meet_kind(2, args, kwargs)
        clock = self._recording.costs.clock
        start = clock()
        self.guard.run(self._note_sharded, norm, args, kwargs)
        self._recording.costs.add("gradient norms", clock() - start)
        return norm

    def _around_norm(
        self, original: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Any:
        """The norm is taken that gradients are to be clipped by."""
        self._meet_kind(1, args, kwargs)
        return original(*args, **kwargs)

    def _meet_kind(self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember which norm it is, by its place among the arguments."""
        recording = self._recording
        if recording.threads.state.native_id == recording.training_thread:
            self._kind = args[place] if len(args) > place else kwargs.get("norm_type", _EUCLIDEAN)

    def _around(self, original: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
        """Gradients are clipped by their norm."""
        clock = self._recording.costs.clock
        start = clock()
        self.guard.run(self._note, args, kwargs)
        self._recording.costs.add("gradient norms", clock() - start)
        return original(*args, **kwargs)

    def _note(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_behind: bool = False
    ) -> None:
        """Remember the norm, if it is that of all gradients; of several in a step, the last."""
        norm = kwargs["total_norm"] if "total_norm" in kwargs else args[2]
        thread = self._recording.threads.state
        self._recording.objects.clip = clip_of(*args[:2], **kwargs)
        clipped = args[0] if args else kwargs.get("parameters")
        if thread.native_id != self._recording.training_thread:
            return
        if not self._is_apart(clipped, is_behind=is_behind):
            number = read_number(norm, self._accelerator)
            rows, clip = self._recording.rows, self._recording.objects.clip
            rows.norm = number or rows.norm
            rows.max_norm = clip.max_norm if number is not None and clip is not None else None

    def _is_apart(self, clipped: Any, *, is_behind: bool) -> bool:
        """Whether a norm is another than the Euclidean one of all gradients, or comes behind one.

        That of more than half of them stands for all, as where a script leaves out a temperature of
        the loss; but not where it clips the others apart. Our own is taken as the first of these is
        about to clip, when it is time to.

        Args:
            is_behind: Whether it has clipped already.
        """
        recording, kind, self._kind = self._recording, self._kind, _EUCLIDEAN
        objects, step, rows = recording.objects, recording.step, recording.rows
        optimizer = None if objects.optimizer is None else objects.optimizer()
        optimizer = optimizer or next(iter(objects.counted_optimizers(objects.made)), None)
        if optimizer is None or not has(optimizer, clipped):
            return bool(kind != _EUCLIDEAN) or self._apart == step
        if self._apart == step:
            self._parted = step
            return True
        left = left_out(clipped, optimizer)
        most = 0 if step - self._parted <= 1 else len(clipped) - 1
        if kind == _EUCLIDEAN and left <= most:
            self._is_partial = left > 0
            return False
        if rows.max_norm is not None and self._is_partial:  # of the others
            rows.norm = rows.max_norm = None
            self._parted = step
        elif not (is_behind or recording.passing):
            self._consider(optimizer, (), {})
        self._apart = step
        return True

    def _note_sharded(self, norm: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember the norm that FSDP1 gave back, and what it clipped."""
        given = (list(args[0].parameters()), *args[1:2])
        self._note(given, {**kwargs, "total_norm": norm}, is_behind=True)

    def _before_step(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """An optimizer is about to step."""
        recording = self._recording
        if self._sharded_clip is None:
            self.guard.run(self._meet_sharded)
        if recording.now.step < self._next:
            return
        counted = recording.objects.optimizer
        if counted is None or counted() is not optimizer:
            return
        if recording.threads.state.native_id != recording.training_thread:
            return
        if self._apart != recording.now.step:  # else what there is now has been clipped
            try:
                self._consider(optimizer, args, kwargs)
            except Exception:  # noqa: BLE001 - never harm the host
                self.guard.fault()

    def _consider(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """Take the norm, if the script has not, and if it is time to."""
        rows, step = self._recording.rows, self._recording.step
        step_ns = rows.took_ns
        if step < self._next or not step_ns or rows.norm is not None:
            return
        if (kwargs or len(args) > 1) and has_closure(args, kwargs):
            return
        torch: Any = sys.modules["torch"]
        if is_capturing() or torch.autograd._profiler_enabled():
            return  # what a profile shows is to be the training's own
        if not self._is_warm:  # what is only set up once must not count as what it costs
            total_norm(optimizer)
            self._is_warm = True
        start = self._clock()
        found = total_norm(optimizer)
        if found is None:
            self._next = step + self._interval.taken(self._clock() - start, step_ns)
            return
        norm, size = found
        number = read_number(norm, self._accelerator)
        scale = getattr(optimizer, "grad_scale", None)  # of one that unscales in its step itself
        if number is not None and scale is not None:
            divisor = read_number(scale, self._accelerator)
            number = None if divisor is None else number.over(divisor)
        rows.norm = number
        on_device = 0.0 if norm.device.type == "cpu" else size / _BYTES_PER_NS
        took_ns = max(self._clock() - start, on_device)
        self._next = step + self._interval.taken(took_ns, step_ns)


def clip_of(
    parameters: Any = (), max_norm: Any = None, total_norm: Any = None, **_: Any
) -> Clip | None:
    """What a call clips, by the arguments of torch's function; None where that cannot be told."""
    del total_norm
    is_one = isinstance(parameters, sys.modules["torch"].Tensor)
    clipped = [parameters] if is_one else parameters
    if not isinstance(max_norm, float | int) or not isinstance(clipped, list) or not clipped:
        return None
    return Clip(float(max_norm), (as_seen(clipped[0]), as_seen(clipped[-1])), len(clipped))


def has(optimizer: Optimizer, clipped: Any) -> bool:
    """Whether what is clipped is an optimizer's, as far as the first parameter tells."""
    if not isinstance(clipped, list) or not clipped:
        return False
    first = clipped[0]
    for group in optimizer.param_groups:  # mostly it is the first of all
        for parameter in group["params"]:
            if parameter is first:
                return True
    return False


def left_out(clipped: list[Any], optimizer: Optimizer) -> int:
    """How many of an optimizer's gradients are not clipped."""
    if len(clipped) >= sum([len(group["params"]) for group in optimizer.param_groups]):
        return 0
    parameters = parameters_of(optimizer)
    return max(0, sum(parameter.grad is not None for parameter in parameters) - len(clipped))


def total_norm(optimizer: Optimizer) -> tuple[Any, int] | None:
    """The norm of all gradients of an optimizer, as a tensor, and the bytes that were read.

    Returns:
        None where there are no gradients, or some that cannot be read with the others, or of which
        other ranks have more.
    """
    torch: Any = sys.modules["torch"]
    parameters = parameters_of(optimizer)
    pairs, left_out = gradients_of(parameters)
    devices = {gradient.device for _, gradient in pairs}
    if left_out or len(devices) != 1 or any(map(is_flat_shard, parameters)):
        return None
    norms = norms_of([gradient for _, gradient in pairs])
    with torch.no_grad():
        widest = max((norm.dtype for norm in norms), key=lambda dtype: dtype.itemsize)
        stacked = torch.stack([norm.to(widest) for norm in norms])
        size = sum(gradient.nbytes for _, gradient in pairs)
        return torch.linalg.vector_norm(stacked), size
