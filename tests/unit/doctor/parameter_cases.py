"""Records of parameters inside wrappers that were never called, and of what only looks like it."""

from __future__ import annotations

from typing import Any

from .made import Facts, facts, steps
from .records import MIB, Case


def _wrapped(count: int = 300, exchanged: float = 0.0, first: int = 0, **columns: Any) -> Facts:
    """A model of 8 MiB inside a wrapper that was never called.

    Args:
        exchanged: What part of it collectives move in every tenth step.
        first: The oldest step that is on record.
    """
    row = {"model": "net", "parameter": "weight", "trainable": True, "bytes": 8 * MIB,
           "optimizer": "opt", "idle_wrapper": "DistributedDataParallel", **columns}  # fmt: skip
    made = [one for one in steps(count) if one["step"] >= first]
    calls = [{"step": step, "op": "all_reduce", "bytes": int(exchanged * 8 * MIB)}
             for step in range(10, count, 10)]  # fmt: skip
    record = {
        "steps": made,
        "optimizer_steps": [{"step": 5, "optimizer": "opt"}],
        "collectives": [{"step": 0, "op": "broadcast", "bytes": 8 * MIB}, *calls],
    }
    return facts(record, {"parameters": [row]})


WRAPPED = (
    Case("idle-wrapper", _wrapped, "certain", 0, "each rank trains net by itself"),
    Case("idle-wrapper", lambda: _wrapped(exchanged=0.001), "certain", 0, "8.00 MiB"),  # metrics
    Case("idle-wrapper", lambda: _wrapped(count=20), "likely", 0),
    Case("idle-wrapper", lambda: _wrapped(first=50), "likely"),
    Case(
        "idle-wrapper",
        lambda: _wrapped(idle_wrapper="DistributedDataParallel (gone)"),
        "likely",
        None,
        "held by nobody any more",
    ),
    Case("idle-wrapper", lambda: _wrapped(exchanged=0.5), None),  # by hand, in half precision
    Case("idle-wrapper", lambda: _wrapped(idle_wrapper=None), None),
    Case("idle-wrapper", lambda: _wrapped(optimizer=None), None),  # a teacher
    Case("idle-wrapper", lambda: _wrapped(optimizer="other"), None),  # it has not stepped
    Case("idle-wrapper", lambda: _wrapped(trainable=False), None),
)
