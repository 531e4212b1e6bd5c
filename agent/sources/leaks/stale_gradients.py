"""Whether a step's first backward pass adds to gradients of the step before.

Rules of this file: runs in the training thread, as a backward pass begins, while it is armed; looks
at a few small gradients and waits for their device.
"""

from __future__ import annotations

from ....safety.guard import Guard
from ..shared.gradients import gradients_of
from ..shared.recording import Recording

_LOOKED_AT = 3
_LARGEST = 1 << 20


class StaleGradients:
    """Looks once per step."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._found: bool | None = None
        self._guard = Guard("stale gradients", self.stop)

    def start(self) -> None:
        """Look from the next backward pass on."""
        self._recording.events.before_backward += (self._look,)

    def stop(self) -> None:
        """Look no more; to stop twice is harmless."""
        self._recording.events.forget(self._look)

    def take(self) -> bool | None:
        """What the step that has ended showed; None where nothing was seen."""
        found, self._found = self._found, None
        return found

    def _look(self, _: tuple[object, ...]) -> None:
        """A backward pass is about to begin."""
        if self._found is None:
            self._guard.run(self._read)

    def _read(self) -> None:
        """See whether any of some gradients holds something."""
        optimizers = self._recording.objects.counted_optimizers()
        if len(optimizers) != 1:
            return  # one may be zeroed later than this
        parameters = [one for group in optimizers[0].param_groups for one in group["params"]]
        found = gradients_of(parameters, self._recording)
        if found is None:
            return
        gradients = [one for one in found if one is not None and 0 < one.numel() <= _LARGEST]
        gradients.sort(key=lambda gradient: gradient.numel())
        self._found = any(bool(g.detach().any()) for g in gradients[:_LOOKED_AT])
