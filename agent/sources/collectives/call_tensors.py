"""What collectives are called with: tensors, lists of them, and lists of lists.

Rules of this file: looks at sizes and devices only, and keeps nothing.
"""

from __future__ import annotations

from typing import Any


def device_of(tensors: Any) -> Any:
    """The device of lists of lists of tensors; None for the host, and where there are none."""
    first = None if tensors is None else _first(tensors)
    return None if first is None or first.is_cpu else first.device


def flat_tensors(tensors: Any) -> list[Any]:
    """The tensors of lists of lists."""
    if type(tensors) in (list, tuple):
        return [tensor for item in tensors for tensor in flat_tensors(item)]
    return [tensors]


def _first(tensors: Any) -> Any:
    while type(tensors) in (list, tuple):
        tensors = tensors[0] if tensors else None
    return tensors
