"""The parameter groups of the optimizers, for ``python.optimizers``.

Rules of this file: runs in the agent's thread while others train; reads what stands beside a
tensor's data (shape, type, device), never the data but that of a learning rate, and never a
gradient. Nothing read stays referenced.
"""

from __future__ import annotations

import sys
from typing import Any

from ....messages.common import LiveRows
from ....tables import OPTIMIZERS
from ..model.tensor_facts import Sizes, sizes_of
from ..shared.found import found_optimizers
from ..shared.objects import Clip
from ..shared.recording import Recording
from ..torch_types import Optimizer
from .optimizer_facts import number_of

Row = tuple[str | int | float | bool | None, ...]


def optimizer_rows(recording: Recording | None) -> LiveRows:
    """The rows of ``python.optimizers`` now."""
    met = recording.objects.optimizers.alive() if recording is not None else []
    optimizers = met or (found_optimizers() if recording is not None else [])
    rows = [
        _row(number, optimizer, place, group, recording)
        for number, optimizer in enumerate(optimizers)
        for place, group in enumerate(list(optimizer.param_groups))
    ]
    note = None if met else "no optimizer has stepped since the agent came into the process"
    if rows and note is not None:
        note += "; shown are those that the process holds"
    return LiveRows.of(OPTIMIZERS, rows, note)


def _row(
    number: int,
    optimizer: Optimizer,
    place: int,
    group: dict[str, Any],
    recording: Recording | None,
) -> Row:
    """The row of one group, in the order of the table's columns."""
    params = list(group["params"])
    held = sizes_of(params)
    return (
        number,
        type(optimizer).__name__,
        None if recording is None else recording.objects.optimizer_names.name_of(optimizer),
        place,
        _number(group.get("lr")),
        _number(group.get("weight_decay")),
        _betas(group.get("betas")),
        _number(group.get("momentum")),
        _clip_of(optimizer, group, recording.objects.clip if recording is not None else None),
        len(params),
        held.numbers,
        held.trainable,
        held.bytes,
        _state_of(optimizer, params).bytes,
        held.dtype,
        held.device,
        None if recording is None else recording.rows.skipped,
        _implementation_of(group),
    )


def _implementation_of(group: dict[str, Any]) -> str | None:
    if "foreach" not in group and "fused" not in group:
        return None
    if group.get("fused"):
        return "fused"
    if group.get("foreach"):
        return "foreach"
    return "default" if group.get("foreach") is None else "for-loop"


def _clip_of(optimizer: Optimizer, group: dict[str, object], clip: Clip | None) -> float | None:
    """What the group's gradients are clipped to: by the optimizer itself, or by the script."""
    own = _number(group.get("max_grad_norm"))
    if own is not None or clip is None:
        return own
    places = {
        id(param): (other, param)
        for other in list(optimizer.param_groups)
        for param in list(other["params"])
    }
    ends = [(end, *places[end.identity]) for end in clip.ends if end.identity in places]
    found = [other for end, other, param in ends if end.is_of(param)]
    is_whole = bool(found) and clip.tensors >= len(places)
    is_its_own = any(other is group for other in found)
    return clip.max_norm if is_whole or is_its_own else None


def _state_of(optimizer: Any, params: list[object]) -> Sizes:
    tensor_class = sys.modules["torch"].Tensor
    tensors = []
    for param in params:
        state = optimizer.state.get(param)  # asked so, a defaultdict does not grow
        values = list(state.values()) if isinstance(state, dict) else []
        tensors += [value for value in values if isinstance(value, tensor_class)]
    return sizes_of(tensors)


def _betas(value: object) -> str | None:
    if not isinstance(value, (tuple, list)):
        return None
    return ", ".join("?" if (beta := _number(item)) is None else f"{beta:g}" for item in value)


def _number(value: Any) -> float | None:
    """A number of a group, out of a tensor only where that waits for no device."""
    is_tensor = isinstance(value, sys.modules["torch"].Tensor)
    return number_of(value, is_tensor and value.device.type == "cpu")
