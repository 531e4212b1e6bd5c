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
    number = number_of(value, type(value) is sys.modules["torch"].Tensor and value.is_cpu)
    return NULL_FLOAT if number is None else number


def number_of(value: Any, is_here: bool) -> float | None:  # noqa: FBT001 - a hot path
    """A number of a parameter group, or that in a tensor; None for anything else.

    Args:
        is_here: Whether it is a tensor that is read without waiting for a device.
    """
    if not (is_here or isinstance(value, float | int)):
        return None
    try:
        return float(value.item() if is_here else value)
    except (OverflowError, RuntimeError, TypeError):  # too large, several in one, or complex
        pass_on()
        return None
