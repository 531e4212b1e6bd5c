"""A report on the memory of a training on one accelerator, for the renderers."""

from __future__ import annotations

from typing import Any

from probing.diagnosis.advice import Advice
from probing.diagnosis.memory.activation_theory import Transformer
from probing.diagnosis.memory.memory_report import Device, MemoryReport
from probing.tables import CATEGORIES

_GIB = 2**30
_MIB = 2**20


def _rows(moment: str, sizes: dict[str, int], total: int) -> tuple[dict[str, Any], ...]:
    """The rows of python.memory_categories at a moment."""
    return tuple(
        {
            "moment": moment,
            "category": category,
            "bytes": sizes.get(category, 0),
            "share": sizes.get(category, 0) / total,
            "storages": 7 if category in sizes else 0,
            "quantized_bytes": 256 * _MIB if category == "parameters" else 0,
            "quantized_numbers": 512 * _MIB if category == "parameters" else 0,
            "adapter_bytes": 16 * _MIB if category == "parameters" else 0,
            "largest": "h.0.mlp.weight 64.0 MiB" if category in sizes else None,
        }
        for category in CATEGORIES
    )


_NOW = {"parameters": _GIB, "gradients": _GIB, "optimizer_state": 2 * _GIB}
_BEFORE = {"parameters": _GIB, "optimizer_state": 2 * _GIB, "activations": 5 * _GIB}
_FIGURES = {
    "device": "cuda:0",
    "step": 41,
    "phase": "after_step",
    "allocated_bytes": 4 * _GIB + 80 * _MIB,
    "peak_bytes": 9 * _GIB,
    "reserved_bytes": 11 * _GIB,
    "peak_reserved_bytes": 11 * _GIB,
    "device_used_bytes": 12 * _GIB,
    "device_total_bytes": 16 * _GIB,
    "resident_bytes": 3 * _GIB,
    "cgroup_bytes": 4 * _GIB,
    "cgroup_limit_bytes": 8 * _GIB,
    "cgroup_oom_kills": 1,
    "node_used_bytes": 100 * _GIB,
    "node_total_bytes": 256 * _GIB,
}
_FIRST = {**_FIGURES, "resident_bytes": _GIB, "device_used_bytes": 604 * _MIB, "reserved_bytes": 0}


def _segment(free: int, largest: int) -> dict[str, Any]:
    return {"device": "cuda:0", "pool": "large", "free_bytes": free, "largest_free_bytes": largest}


def _pinned(reserved: int, allocated: int) -> dict[str, Any]:
    return {
        "device": "cpu",
        "pool": "pinned",
        "reserved_bytes": reserved,
        "allocated_bytes": allocated,
        "free_bytes": reserved - allocated,
        "largest_free_bytes": None,
    }


MEMORY_REPORT = MemoryReport(
    devices=(
        Device(
            name="cuda:0",
            categories={
                "now": _rows("now", _NOW, 4 * _GIB),
                "before_backward": _rows("before_backward", _BEFORE, 8 * _GIB),
            },
        ),
    ),
    tensors=(
        {
            "bytes": 64 * _MIB,
            "category": "activations",
            "module": "h.0.mlp",
            "name": None,
            "dtype": "bfloat16",
            "shape": "8,1024,4096",
            "device": "cuda:0",
            "address": 4096,
            "age_steps": 0,
            "frame": "/home/me/train.py:42 forward",
        },
        {
            "bytes": 32 * _MIB,
            "category": "optimizer_state",
            "module": "h.1.mlp",
            "name": "weight.exp_avg",
            "dtype": "float32",
            "shape": "4096,2048",
            "device": "cuda:0",
            "address": 8192,
            "age_steps": None,
            "frame": None,
        },
    ),
    activations=(
        {"module": "h.0.mlp", "device": "cuda:0", "bytes": 45 * _MIB, "tensors": 2, "step": 41},
        {"module": None, "device": "cuda:0", "bytes": _MIB, "tensors": 1, "step": 41},
    ),
    segments=(
        _segment(5 * _GIB, 2 * _GIB),
        _segment(_GIB, _GIB),
        _pinned(3 * _GIB, 2 * _GIB),
    ),
    newest={"cuda:0": _FIGURES},
    baseline={"cuda:0": _FIRST},
    peak={"step": 40, "module": "h.1.mlp", "stage": "forward", "allocated_bytes": 9 * _GIB},
    transformer=Transformer(layers=("h.0", "h.1"), batch=1, length=1024, width=1024, inner=3072),
    suggestions=(
        Advice(rule="activations", action="recompute them", evidence="activations: 31 %"),
    ),
    notes=(),
    referrers={
        8192: (
            {
                "holder": "global",
                "path": "optimizer.state['exp_avg']",
                "place": "__main__",
                "container": "dict of 3",
                "file": "/home/me/adamw.py",
                "lineno": 120,
            },
        )
    },
)
NOTHING_SEEN = MemoryReport(
    devices=(),
    tensors=(),
    activations=(),
    segments=(),
    newest={},
    baseline={},
    peak=None,
    transformer=None,
    suggestions=(),
    notes=("the process has not imported torch",),
)
