"""Rows of python.leaks and python.leak_steps as a watch leaves them."""

from __future__ import annotations

import dataclasses
from typing import Any

from probing.diagnosis.leaks.growth import grouped, phase_changes
from probing.diagnosis.leaks.report import LeakReport, report_of

FIRST, STEPS = 100, 8


def leak_row(**given: Any) -> dict[str, Any]:
    """A row of python.leaks: a scalar in a list, but for what is given."""
    row: dict[str, Any] = {
        "category": "other",
        "module": None,
        "name": None,
        "shape": "float32[]",
        "device": "cpu",
        "was_input": False,
        "kept": STEPS,
        "births": STEPS,
        "tensors_per_step": 1.0,
        "bytes_per_step": 4.0,
        "tensors": 120,
        "bytes": 480,
        "has_graph": False,
        "holder": "global",
        "path": "all_losses[...]",
        "place": "__main__",
        "container": "list of 120",
        "bound": None,
        "file": "/home/me/train.py",
        "lineno": 42,
        "first_step": FIRST + 1,
        "last_step": FIRST + STEPS,
    }
    return row | given


def step_rows(
    *, growth: int = 0, stale: bool = False, pools: tuple[int, ...] | None = None
) -> list[dict[str, Any]]:
    """The rows of python.leak_steps: parameters stay as they are, others may grow."""
    return [
        {
            "step": step,
            "category": category,
            "tensors": count,
            "bytes": size,
            "modules": 7,
            "hooks": 0,
            "stale_gradients": stale,
            "graph_pools": None if pools is None else 1,
            "graph_pool_bytes": None if pools is None else pools[step - FIRST],
            "cost_s": 0.01,
        }
        for step in range(FIRST, FIRST + STEPS + 1)
        for category, count, size in (
            ("parameters", 12, 1 << 20),
            ("activations", 3 * (step - FIRST), growth * (step - FIRST)),
        )
    ]


def history_rows(count: int = 40, **slopes: int) -> list[dict[str, Any]]:
    """What is on record of a device, each figure with its own growth per step."""
    rows = []
    for step in range(count):
        row: dict[str, Any] = {"step": step, "device": "cuda:0"}
        row["allocated_bytes"] = (1 << 30) + slopes.get("allocated", 0) * step
        row["reserved_bytes"] = row["allocated_bytes"] + slopes.get("reserved", 0) * step
        row["device_used_bytes"] = row["reserved_bytes"] + slopes.get("outside", 0) * step
        row["resident_bytes"] = 1 << 30
        rows.append(row)
    return rows


KEPT_GRAPH: LeakReport = report_of(
    [
        leak_row(has_graph=True),
        leak_row(
            category="activations", shape="float32[8,64]", holder="graph", has_graph=None,
            bytes_per_step=6144.0, tensors_per_step=3.0,
        ),
        leak_row(
            name="hooks", category=None, tensors_per_step=None, bytes_per_step=None,
            holder="attribute", path="0.forward_hooks", place="make.<locals>.look",
            container=None, lineno=7, shape=None,
        ),
        leak_row(
            shape="int64[8]", holder="local", path="recent[...]", place="train\x1b[31m",
            container="deque of 20", bound=100, lineno=None, bytes_per_step=64.0,
        ),
    ],
    step_rows(growth=6148, stale=True),
    history_rows(allocated=6656, reserved=1 << 20),
)  # fmt: skip
HEALTHY: LeakReport = report_of([], step_rows(), history_rows())
OUTSIDE: LeakReport = report_of([], step_rows(), history_rows(outside=4 << 20))
FAILED: LeakReport = report_of([], step_rows()[:4], [], failure="RuntimeError: no such thing")


GROWTH_ROWS: list[dict[str, Any]] = [
    {
        "category": category,
        "module": module,
        "dtype": "float32",
        "device": "cpu",
        "tensors_before": before,
        "tensors_after": before + more,
        "bytes_before": before * 4096,
        "bytes_after": (before + more) * 4096,
    }
    for category, module, before, more in (
        ("activations", "blocks.0.mlp", 0, 16),
        ("temporary", "blocks.0.mlp", 1, 0),
        ("activations", "blocks.1.mlp", 8, 8),
        ("other", None, 2, -1),
    )
]
GROWN_BY_MODULE = dataclasses.replace(
    KEPT_GRAPH, by="module", groups=grouped(GROWTH_ROWS, "module")
)


def phase_rows(*, kept: int, device: str = "cuda:0") -> list[dict[str, Any]]:
    """Rows of python.memory of the watched steps, of whose activations so much is kept."""
    rows, level = [], 5000
    for step in range(FIRST, FIRST + STEPS + 1):
        for phase, change in (
            ("before_forward", 0),
            ("after_forward", 800),
            ("after_backward", kept - 700),
            ("after_step", -100),
        ):
            level += change
            rows.append(
                {"step": step, "phase": phase, "device": device, "allocated_bytes": level,
                 "resident_bytes": None}
            )  # fmt: skip
    return rows


GROWN_BY_PHASE = dataclasses.replace(
    KEPT_GRAPH,
    by="phase",
    phases=phase_changes(phase_rows(kept=64), FIRST + 1, FIRST + STEPS),
)
