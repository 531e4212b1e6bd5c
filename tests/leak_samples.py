"""Rows of python.leaks and python.leak_steps as a watch leaves them."""

from __future__ import annotations

from typing import Any

from probing.leaks.report import LeakReport, report_of

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


def step_rows(*, growth: int = 0, stale: bool = False) -> list[dict[str, Any]]:
    """The rows of python.leak_steps: parameters stay as they are, activations may grow."""
    return [
        {
            "step": step,
            "category": category,
            "tensors": count,
            "bytes": size,
            "modules": 7,
            "hooks": 0,
            "stale_gradients": stale,
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
