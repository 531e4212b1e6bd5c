"""A look at whether a device computes, which somebody has asked for.

Rules of this file: runs in a thread of the agent's own, in a queue of its own, and only on devices
that the process uses. No graph is captured meanwhile, so it takes less time than a capture waits.
It takes a few MiB that the allocator then keeps, uses no library that keeps more, draws no random
numbers, and tries nothing where memory is short: the allocator would give back what others use.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..torch_types import Tensor
from . import captures
from .api import device_api, device_kind
from .owned import pool_of
from .seam import PendingNumber

_LIMIT_S, _POLL_S = 0.8, 0.001
_ENOUGH_BYTES = 64 << 20
_WORDS = 1 << 17
"""Words of eight bytes, a MiB: for anything larger the allocator takes 20 MiB, and keeps them.

Torch sums 64 bits: of narrower words it would first make a copy, of twice their size.
"""
_SUM = 3 * _WORDS * (_WORDS - 1) // 2 + _WORDS
_MIB = 1 << 20


class DeviceCheck(NamedTuple):
    """What came of it.

    Attributes:
        ok: Whether it has computed what it was to; None where that is not known.
        seconds: How long that took, by the host's clock.
        error: What was wrong, or why it is not known.
    """

    device: str
    ok: bool | None
    seconds: float | None = None
    error: str | None = None


def check_devices(
    used: Sequence[int], copy: Callable[[Tensor], PendingNumber | None]
) -> list[DeviceCheck]:
    """Have each device compute something.

    Args:
        used: Those that the process uses; the others are not begun to be used.
        copy: Has a number brought to the host.
    """
    found = []
    for index in range(device_api().device_count()):
        name = f"{device_kind()}:{index}"
        if index in used:
            found.append(_check(name, index, copy))
        else:
            found.append(DeviceCheck(name, None, error="this process does not use it"))
    return found


def _check(name: str, index: int, copy: Callable[[Tensor], PendingNumber | None]) -> DeviceCheck:
    with captures.quiet() as may_ask:
        if not may_ask:
            return DeviceCheck(name, None, error="a graph is being captured: ask again")
        try:
            return _compute(name, index, copy)
        except RuntimeError as error:  # what torch and CUDA raise, by whatever name
            is_short = isinstance(error, sys.modules["torch"].OutOfMemoryError)
            told = str(error).strip().partition("\n")[0]
            return DeviceCheck(name, None if is_short else False, error=told)


def _compute(name: str, index: int, copy: Callable[[Tensor], PendingNumber | None]) -> DeviceCheck:
    """Have it fill a MiB, multiply, add and sum, and compare."""
    torch, api = sys.modules["torch"], device_api()
    queue = pool_of(("check", api.Event, index), lambda: api.Stream(index))
    with api.device(index):
        if api.mem_get_info(index)[0] < _ENOUGH_BYTES:
            why = f"less than {_ENOUGH_BYTES // _MIB} MiB are free: nothing was tried"
            return DeviceCheck(name, None, error=why)
        begin = time.perf_counter()
        with api.stream(queue), torch.no_grad():
            words: Any = torch.arange(_WORDS, dtype=torch.int64, device=name)
            number = copy((words * 3 + 1).sum())
        end = begin + _LIMIT_S
        while number is not None and not number.is_here() and time.perf_counter() < end:
            time.sleep(_POLL_S)
        took = time.perf_counter() - begin
        if number is None or not number.is_here():
            why = f"no answer within {_LIMIT_S:g} s: it has other work, or hangs"
            return DeviceCheck(name, None, error=why)
    if number.value() != _SUM:
        return DeviceCheck(
            name, ok=False, seconds=took, error="it computes wrongly: integers do not add up"
        )
    return DeviceCheck(name, ok=True, seconds=took)
