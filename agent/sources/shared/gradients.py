"""Reads which gradient a parameter has, where another thread may be replacing it.

Rules of this file: runs in any thread. Autograd's engine replaces gradients without the
interpreter lock, so that to read one meanwhile can end the process. A thread comes to its pass with
that lock, and says so first: between the look at who passes and the reading it cannot.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recording import Recording

UNKNOWN: Any = object()
"""It cannot be read now."""
_POLL_S = 0.0005


def gradient_beside(parameter: Any, passing: set[int]) -> Any:
    """The gradient of a parameter that another thread may train; `UNKNOWN` while any passes.

    Args:
        passing: See `Recording.passing`.
    """
    # One expression: the interpreter changes threads at calls and loops only.
    return parameter.grad if not passing else UNKNOWN


class GradientsBeside:
    """Reads gradients in the agent's thread, between the passes of a training that goes on.

    Args:
        wait_s: How long ends of passes are waited for, of all gradients together.
    """

    def __init__(self, recording: Recording, wait_s: float) -> None:
        self._recording = recording
        self._until = time.monotonic() + wait_s

    def of(self, parameter: Any) -> Any:
        """The gradient of a leaf; `UNKNOWN` where passes leave no room for that.

        Passes are seen from the first step on that is recorded.
        """
        recording = self._recording
        while True:
            is_seen = recording.sees_passes and not recording.awaits_step
            found = gradient_beside(parameter, recording.passing) if is_seen else UNKNOWN
            if found is not UNKNOWN or time.monotonic() > self._until:
                return found
            time.sleep(_POLL_S)
