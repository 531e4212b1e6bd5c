"""Settings for a training that is not stable: a smaller rate, a warm-up, clipped gradients.

Rules of this file: pure functions of steps on record. What can be set while it runs is said with
its command; the rest belongs into the script.
"""

from __future__ import annotations

import numpy as np

from .....units import figure
from ...facts import Steps

_SLOWER = 0.1
_MAX_NORM = 1.0
_WARM_UP = 500
STEADIER = f"Lower the learning rate to a tenth, warm it up, and clip the gradients to {_MAX_NORM}."


def steadier(steps: Steps) -> str:
    """What to set, in figures of this training.

    Args:
        steps: Those from before it went wrong, if there are any: their rate is the one to lower.
    """
    rates = steps.column("lr")
    known = rates[np.isfinite(rates) & (rates > 0)]
    if not len(known):
        return STEADIER
    rate = float(np.max(known[-_WARM_UP:]))
    return (
        f"For a steadier training: learning rate {figure(_SLOWER * rate, 3)} (it was"
        f" {figure(rate, 3)}), warmed up over {_WARM_UP} steps; clip_grad_norm_(..., {_MAX_NORM})."
        f" At once, in this run: `probing PID act lr --scale {_SLOWER}` and"
        f" `probing PID act clip {_MAX_NORM}`."
    )
