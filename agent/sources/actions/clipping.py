"""Clips the norm of all gradients before every optimizer step.

Rules of this file: never waits for the device, but to sum up a sparse gradient that has rows of one
index apart, as the optimizer does next. Gradients whose norm is not finite are left as they
are, since to divide by such a norm would only spread it. Under AMP the gradients are those that the
optimizer steps with: unscaled, or compared with the limit times the scale where it unscales them
itself.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

from ....errors import ActRefused
from ....messages.about.act import Clip
from ..numbers.gradient_tensors import parameters_of
from ..torch_types import Optimizer
from .ledger import Applied
from .moments.step_hooks import StepHooks, exchange, found
from .targets.scene import Scene

_EPSILON = 1e-6
"""As torch.nn.utils.clip_grad_norm_ has it."""
_SINGLE = 4
"""The bytes of a float32."""
_WHAT = "gradient norm is clipped to"


class Clipping:
    """Begins to clip, or ends it."""

    def __init__(self, asked: Clip) -> None:
        if asked.max_norm is not None and not 0 < asked.max_norm < float("inf"):
            raise ActRefused(f"{asked.max_norm:g} is no norm to clip to")
        self._max_norm = asked.max_norm
        self._wanted = asked.optimizer

    def prepare(self, scene: Scene) -> None:
        """Find the optimizers."""
        scene.refuse_alone("clipping")
        self._optimizers, self._notes = scene.chosen(self._wanted)
        scene.refuse_sharded("clipping", "Clip in the script: only there all ranks can take part.")
        is_alike = scene.world_size() == 1 or scene.is_replicated()
        if not is_alike:
            self._notes += ("each rank clips by the norm of its own gradients",)

    def apply(self, scene: Scene) -> Applied:
        """Put the hook on, or take it off."""
        hooks = None
        if self._max_norm is None and not found(scene.hooks, "clip", self._optimizers):
            return Applied(notes=("nothing was clipped by an action before",))
        if self._max_norm is not None:
            work = functools.partial(clip, max_norm=self._max_norm)
            hooks = StepHooks("clip", f"{self._max_norm:g}", with_gradients=work)
        change, undo = exchange(scene.hooks, "clip", hooks, self._optimizers, what=_WHAT)
        notes = self._notes + self._script_notes(scene)
        return Applied((change,), notes, undo, "clip", hooks, weakref.WeakSet(self._optimizers))

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Nothing more."""
        return applied

    def _script_notes(self, scene: Scene) -> tuple[str, ...]:
        """What the script does itself."""
        notes: tuple[str, ...] = ()
        clip = scene.recording.objects.clip
        if clip is not None:
            notes += (f"the script itself clips to {clip.max_norm:g} before that",)
        if len(self._optimizers) > 1:
            notes += (f"each of {len(self._optimizers)} optimizers by the norm of its own",)
        return notes


def clip(optimizer: Optimizer, max_norm: float) -> None:
    """Clip the gradients that an optimizer is about to step with."""
    torch = sys.modules["torch"]
    gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
    if not gradients:
        return
    with torch.no_grad():
        device = gradients[0].device
        norms = [_norm(gradient).to(device, torch.float32) for gradient in gradients]
        total = torch.linalg.vector_norm(torch.stack(norms))
        limit = max_norm
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None:  # it divides by that itself, as it steps
            limit = max_norm * scale.to(device)
        factor = (limit / (total + _EPSILON)).clamp(max=1.0)
        factor = torch.where(torch.isfinite(total), factor, torch.ones_like(factor))
        for gradient in gradients:
            numbers = gradient._values() if gradient.is_sparse else gradient
            numbers.mul_(factor.to(numbers.device))


def _norm(gradient: Any) -> Any:
    """The Euclidean norm, where the gradient is; of half precision in float32."""
    numbers = gradient.coalesce().values() if gradient.is_sparse else gradient
    is_half = numbers.dtype.itemsize < _SINGLE
    return sys.modules["torch"].linalg.vector_norm(numbers.float() if is_half else numbers)
