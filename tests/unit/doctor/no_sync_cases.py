"""Records of what ranks exchange in a step of several backward passes."""

from __future__ import annotations

from typing import Any

from .made import Facts, facts, steps
from .records import Case

_TRAINED = 3_000_000
_DDP = "OptimizedModule > DistributedDataParallel"


def _accumulated(
    passes: int = 4,
    *,
    reduced: int | None = None,
    waited: float = 0.2,
    wrappers: str | None = _DDP,
    dtype: str = "float32",
    ranks: int = 2,
    metrics: int = 0,
    kept: int | None = None,
    **columns: Any,
) -> Facts:
    """A model of three million parameters, in two buckets.

    Args:
        passes: Backward passes of a step, of 0.1 s.
        reduced: In how many of them gradients are averaged, by default in all.
        waited: What part of a step they wait for that, together.
        metrics: How many numbers are averaged in each pass, and waited for.
        kept: How many passes are in the gradients that are used.
    """
    reduced = passes if reduced is None else reduced
    width = {"float32": 4, "bfloat16": 2}[dtype]
    made = steps(60, micro_batches=passes, optimizer_steps=1, **columns)
    base = {"op": "all_reduce", "group_size": ranks, "dtypes": dtype, "failed": False}
    calls = [
        {**base, "step": row["step"], "bytes": width * elements, "caller": "train.py:41"}
        for row in made
        for _ in range(reduced)
        for elements in (_TRAINED // 3, _TRAINED - _TRAINED // 3)
    ]
    calls += [
        {**base, "step": row["step"], "bytes": 4 * metrics, "caller": "train.py:50"}
        for row in made
        for _ in range(passes if metrics else 0)
    ]
    waits = passes if metrics else reduced
    batches = [
        {"step": row["step"], "micro_batch": n, "duration": 0.1 / passes,
         "gradient_sync_s": 0.1 * waited / waits if n >= passes - waits else None}
        for row in made
        for n in range(passes)
    ]  # fmt: skip
    gradients = [
        {"step": row["step"], "model": "net", "parameter": "weight", "passes": passes,
         "kept_passes": kept}
        for row in made[-3:]
    ]  # fmt: skip
    live: dict[str, list[dict[str, Any]]] = {
        "models": [{"model": "net", "wrappers": wrappers}, {"model": "loss", "wrappers": None}],
        "parameters": [
            {"model": "net", "numel": _TRAINED, "trainable": True},
            {"model": "net", "numel": 9 * _TRAINED, "trainable": False},
        ],
    }
    record = {"steps": made, "collectives": calls, "micro_batches": batches, "gradients": gradients}
    return facts(record, live)


SYNCED = (
    Case("no-sync", lambda: _accumulated(8, waited=0.8), "likely", None,
         "in each of the 8 backward passes of a step, and waiting in the first 7 takes 70 %"),
    Case("no-sync", lambda: _accumulated(8, waited=0.8), "likely", None,
         "all_reduce at train.py:41 moves 91.6 MiB in a step, 8.0 times the 3,000,000"),
    Case("no-sync", lambda: _accumulated(2, waited=0.5), "likely", None, "in the first takes 25 %"),
    Case("no-sync", lambda: _accumulated(waited=0.4, dtype="bfloat16"), "likely"),
    Case("no-sync", lambda: _accumulated(waited=0.4, metrics=100, kept=4), "likely"),
    Case("no-sync", lambda: _accumulated(waited=0.2), "possible"),
    Case("no-sync", lambda: _accumulated(waited=0.1), None),
    Case("no-sync", lambda: _accumulated(reduced=1, waited=0.8), None),
    Case("no-sync", lambda: _accumulated(reduced=1, waited=0.8, metrics=100), None),
    Case("no-sync", lambda: _accumulated(2, waited=0.8, dtype="bfloat16", reduced=1), None),
    Case("no-sync", lambda: _accumulated(1, waited=0.8), None),
    Case("no-sync", lambda: _accumulated(waited=0.8, wrappers="FullyShardedDataParallel"), None),
    Case("no-sync", lambda: _accumulated(waited=0.8, wrappers=None), None),  # averaged by hand
    Case("no-sync", lambda: _accumulated(waited=0.8, ranks=1), None),
    Case("no-sync", lambda: _accumulated(2, waited=0.8, kept=1), None),  # a sharper minimum
    Case("no-sync", lambda: _accumulated(waited=0.0, device_s=0.1), None),
    Case("no-sync", lambda: _accumulated(waited=0.0, device_s=0.02, duration=0.02), "possible",
         None, "18 % of it on a network"),
)  # fmt: skip
"""Of which some that are healthy: under `no_sync`, a single pass, other wrappers, no wait."""
