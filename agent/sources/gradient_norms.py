"""The norm of a step's gradients, which the script takes in order to clip them.

Rules of this file: runs in the training thread, in the place of the function that
``torch.nn.utils.clip_grad_norm_`` hands its norm to, so that a script which has imported that one
by name is seen, too.
"""

from __future__ import annotations

import sys
from typing import Any

from ..guard import Guard
from .accelerator import Accelerator
from .numbers import read_number
from .recording import Recording
from .stand_in import StandIn


class GradientNorms:
    """Stands in for the second half of ``clip_grad_norm_``."""

    def __init__(self, recording: Recording, accelerator: Accelerator) -> None:
        self._recording = recording
        self._accelerator = accelerator
        module = sys.modules["torch.nn.utils.clip_grad"]
        self._clip = StandIn(module, "_clip_grads_with_norm_", self._around)
        self.guard = Guard("gradient norms", self.stop)

    @property
    def is_on(self) -> bool:
        """Whether it records."""
        return self._clip.is_on

    def start(self) -> None:
        """Stand in."""
        self._clip.start()

    def stop(self) -> None:
        """Stand in no more."""
        self._clip.stop()

    def close(self) -> None:
        """Stop for good."""
        self.stop()

    def remains(self) -> list[str]:
        """What stays in place after `close`, one sentence each."""
        return self._clip.remains()

    def _around(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Gradients are clipped by their norm."""
        self.guard.run(self._note, args, kwargs)
        return original(*args, **kwargs)

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember the norm; of several in a step, the last."""
        norm = kwargs["total_norm"] if "total_norm" in kwargs else args[2]
        thread = self._recording.threads.state
        if thread.native_id == self._recording.training_thread:
            number = read_number(norm, self._accelerator)
            self._recording.rows.norm = number or self._recording.rows.norm
