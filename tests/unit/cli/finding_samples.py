"""Findings about numbers, as the record holds them, for the renderers."""

from __future__ import annotations

from typing import Any

from probing.cli.render.training.gradients import render_gradients
from probing.cli.render.training.numerics import render_armed, render_finding
from probing.messages.common import Armed

_ROW: dict[str, Any] = {
    "step": 7,
    "module": "blocks.1.mlp",
    "class": "Linear",
    "stage": "forward",
    "role": "producer",
    "what": "output",
    "tensor": "0",
    "shape": "float32[4, 8]",
    "nan_count": 2,
    "inf_count": 1,
    "share": 3 / 32,
    "finite_max": 12.5,
    "given": "input",
    "given_max": 3.0,
}
_ROOT = {"module": "GPT", "class": "GPT", "role": "propagator"}
_WHOLE = {"share": 1.0, "finite_max": None, "nan_count": 32, "inf_count": 0}

CASES: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "made by a module": [_ROW, _ROW | _ROOT, _ROW | _ROOT | {"module": "head"}],
    "made in a module's own code": [_ROW | {"what": "intermediate", "given": None}],
    "a parameter's": [
        _ROW | {"what": "parameter", "tensor": "weight", "given": None},
        _ROW | _WHOLE,
    ],
    "given by the script": [_ROW | {"what": "input", "module": "GPT", "class": "GPT"}],
    "of the loss alone": [_ROW | _WHOLE | {"what": "loss", "module": None, "class": None}],
    "made backwards": [
        _ROW | {"stage": "backward", "what": "grad", "module": f"blocks.{n}"} for n in range(5)
    ],
    "given backwards": [_ROW | {"stage": "backward", "what": "grad", "role": "given"}],
    "steering the terminal": [_ROW | {"module": "a\x1b[2Jb"}],
}


def draw_findings() -> str:
    """Each case under its name."""
    return "\n\n".join(
        f"{name}:\n" + render_finding(_armed(), rows, evidence="SELECT 1", endpoint="4242")
        for name, rows in CASES.items()
    )


def draw_armed() -> str:
    """Whatever can be said of what is armed."""
    states = [
        _armed(),
        _armed(state="waiting", done=0, found=0),
        _armed(state="armed", done=3, found=1),
        _armed(what="gradients", state="failed", reason="the device ran out of memory"),
    ]
    failed = render_finding(states[-1], [], evidence="", endpoint="4242")
    return f"{render_armed([])}\n{render_armed(states)}\n{failed}"


def draw_gradients(width: int | None = None) -> str:
    """A table with everything known, one with little, and none."""
    known = {
        "step": 3,
        "parameter": "blocks.0.attn.qkv.weight",
        "norm": 0.0123456,
        "max_abs": 1.5e-7,
        "nan_count": 0,
        "inf_count": 0,
        "zero_share": 0.25,
        "weight_norm": 12.0,
        "update_ratio": 0.001,
        "numel": 196_608,
    }
    little = dict.fromkeys(known) | {"step": 3, "norm": float("nan"), "numel": 1, "nan_count": 1}
    rows = [little, known, known]
    drawn = render_gradients(rows, most=2, width=width or 100, color=False)
    return f"{drawn}\n\n{render_gradients([], most=0, width=width, color=False)}"


def _armed(**changes: Any) -> Armed:
    """An arming that has ended, changed."""
    facts: dict[str, Any] = {
        "what": "nan",
        "number": 1,
        "state": "over",
        "steps": 20,
        "done": 8,
        "found": 3,
        "first_step": 0,
        "last_step": 7,
        "still_s": 0.5,
        "reason": "",
        "notes": (),
    }
    return Armed(**(facts | changes))
