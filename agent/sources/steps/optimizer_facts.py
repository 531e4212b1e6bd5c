"""What an optimizer says of itself: its rate, and how many steps it has made.

Rules of this file: runs in the training thread; waits for no device.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from ....ring.format import NULL_FLOAT
from ....safety.guard import pass_on
from ..torch_types import Optimizer


def steps_of(optimizer: Optimizer) -> int | None:
    """How many steps an optimizer has made by its own count; None where it keeps none here."""
    for group in optimizer.param_groups:
        for parameter in group["params"][:1]:
            state = optimizer.state.get(parameter)
            count = state.get("step") if isinstance(state, dict) else None
            number = _number(count)
            if math.isfinite(number):
                return int(number)
    return None


def learning_rate_of(optimizer: Any) -> float:
    """That of the first parameter group; NULL where it is a tensor on a device, or no number."""
    groups = optimizer.param_groups
    return _number(groups[0].get("lr")) if groups else NULL_FLOAT


def _number(value: Any) -> float:
    """A number, or that in a tensor in main memory; NULL for anything else."""
    is_here = type(value) is sys.modules["torch"].Tensor and value.is_cpu
    if not (is_here or isinstance(value, float | int)):
        return NULL_FLOAT
    try:
        return float(value.item() if is_here else value)
    except (OverflowError, RuntimeError, TypeError):  # too large, several in one, or complex
        pass_on()
        return NULL_FLOAT
