"""The checks, in the order of their value: what would kill a training comes first.

Each is a function of a `Device` that yields `Finding`s; it runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.gpu.checks import costs, figures, harm, ranks
from tests.gpu.devices import Device
from tests.gpu.findings import Finding

CHECKS: dict[str, Callable[[Device], Iterator[Finding]]] = {
    "fork": harm.fork,
    "capture": harm.capture,
    "waits": harm.waits,
    "numbers": figures.numbers,
    "nccl": ranks.nccl,
    "hang": ranks.hang,
    "device times": figures.device_times,
    "cost": costs.cost,
    "compiled": costs.compiled,
    "memory": figures.memory,
    "allocator": figures.allocator,
    "expandable": figures.expandable,
    "no context": harm.no_context,
    "detach": harm.detach,
    "profile": costs.profile,
    "devices": figures.devices,
    "soak": costs.soak,
}
"""By the names of `tests.gpu.__main__.NAMES`, which knows nothing of torch."""
