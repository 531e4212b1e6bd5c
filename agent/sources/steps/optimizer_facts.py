"""What an optimizer says of itself: its rate, and how many steps it has made.

Rules of this file: runs in the training thread; waits for no device.
"""

from __future__ import annotations

import sys
from typing import Any

from ....ring.format import NULL_FLOAT
from ..torch_types import Optimizer


def steps_of(optimizer: Optimizer) -> int | None:
    """How many steps an optimizer has made by its own count; None where it keeps none here."""
    for group in optimizer.param_groups:
        for parameter in group["params"][:1]:
            count = optimizer.state.get(parameter, {}).get("step")
            is_here = getattr(count, "is_cpu", isinstance(count, int | float))
            if is_here:
                return int(count)
    return None


def learning_rate_of(optimizer: Any) -> float:
    """That of the first parameter group; NULL where it is a tensor on a device."""
    lr = optimizer.param_groups[0].get("lr")
    if isinstance(lr, float | int):
        return float(lr)
    is_here = type(lr) is sys.modules["torch"].Tensor and lr.device.type == "cpu"
    return float(lr) if is_here else NULL_FLOAT
