"""Records of parameters inside wrappers that were never called, and of what only looks like it."""

from __future__ import annotations

from typing import Any

from .made import Facts, facts, steps
from .records import MIB, Case


def _wrapped(
    count: int = 300, exchanged: float = 0.0, first: int = 0, other: int = 0, **columns: Any
) -> Facts:
    """A model of some bytes, by default 8 MiB, inside a wrapper that was never called.

    Args:
        exchanged: What part of it collectives move in every tenth step.
        first: The oldest step that is on record.
        other: What the parameters of another model take, whose wrapper is called.
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
    beside = {"model": "gen", "parameter": "weight", "trainable": True, "bytes": other}
    models = [{"model": "gen", "wrappers": "DistributedDataParallel"}] if other else []
    return facts(record, {"parameters": [row, beside], "models": models})


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
    Case("idle-wrapper", lambda: _wrapped(exchanged=0.5, other=4 * MIB), "likely", 0,
         "each rank trains net by itself"),
    Case("idle-wrapper", lambda: _wrapped(exchanged=1.5, other=4 * MIB), None),  # and by hand
    Case("idle-wrapper", lambda: _wrapped(idle_wrapper=None), None),
    Case("idle-wrapper", lambda: _wrapped(optimizer=None), None),  # a teacher
    Case("idle-wrapper", lambda: _wrapped(optimizer="other"), None),  # it has not stepped
    Case("idle-wrapper", lambda: _wrapped(trainable=False), None),
)  # fmt: skip


def unsynced(
    count: int = 300,
    *,
    size: int = 4,
    every: int = 10,
    note: str = "",
    until: int = 0,
    ranks: int = 2,
    parameters: int = 8 * MIB,
) -> Facts:
    """A model of 8 MiB inside a wrapper that is called.

    Args:
        size: What collectives of every so many steps move, in bytes.
        until: The last step whose gradients were averaged.
    """
    row = {"model": "net", "parameter": "weight", "trainable": True, "bytes": parameters,
           "optimizer": "opt"}  # fmt: skip
    calls = [{"step": step, "op": "all_reduce", "bytes": size} for step in range(0, count, every)]
    calls += [{"step": step, "op": "all_reduce", "bytes": 8 * MIB} for step in range(until)]
    record = {
        "steps": steps(count),
        "optimizer_steps": [{"step": 5, "optimizer": "opt"}],
        "process_groups": [{"process_group": "0", "size": ranks}],
        "collectives": calls,
    }
    live: dict[str, list[dict[str, Any]]] = {
        "models": [{"model": "net", "wrappers": "OptimizedModule > DistributedDataParallel"}],
        "sources": [{"source": "collectives", "state": "on", "note": note}],
        "parameters": [row],
    }
    return facts(record, live)


UNSYNCED = (
    Case("never-synced", unsynced, "likely", 1, "each rank trains net by itself"),
    Case("never-synced", lambda: unsynced(until=60), "likely", 60, "4 B"),
    Case("never-synced", lambda: unsynced(until=140), None),
    Case("never-synced", lambda: unsynced(size=600, every=1), None),  # PowerSGD
    Case("never-synced", lambda: unsynced(size=8 * MIB, every=50), None),  # local SGD
    Case("never-synced", lambda: unsynced(ranks=1), None),
)
