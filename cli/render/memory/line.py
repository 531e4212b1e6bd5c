"""Memory in one line, in the words of DeepSpeed's ``see_memory_usage``.

Rules of this file: a moment is a row of python.memory. It may have one key more, ``since_bytes``:
the most that was seen in use since the line before, on a device of what its allocator has handed
out, else of the resident set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .... import units
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....diagnosis.memory.memory_cleaning import Cleaned

Row = Mapping[str, Any]

_FREED = (
    ("allocated_bytes", "allocated"),
    ("reserved_bytes", "reserved"),
    ("device_used_bytes", "of the device"),
    ("resident_bytes", "resident"),
)


def render_memory_line(moment: Row | None) -> str:
    """What was in use at a moment; a dash for what was not measured."""
    if moment is None:
        return "no row yet: memory is recorded from the first step on"
    device = (
        ("MA", moment["allocated_bytes"]),
        ("Max_MA", moment["peak_bytes"]),
        ("CA", moment["reserved_bytes"]),
        ("Max_CA", moment["peak_reserved_bytes"]),
        ("NV", moment["device_used_bytes"]),
    )
    host = f"CPU {_gib(moment['resident_bytes'])}"
    if moment["cgroup_limit_bytes"] is not None:
        host += f"  cgroup {_gib(moment['cgroup_bytes'])} of {_gib(moment['cgroup_limit_bytes'])}"
    node = f"node {_gib(moment['node_used_bytes'])}, {_percent(moment)}"
    parts = [
        _title(moment),
        moment["device"],
        "  ".join(f"{name} {_gib(size)}" for name, size in device),
        f"{host}  {node}",
    ]
    if moment.get("since_bytes") is not None:
        parts.append(f"most since the line before {_gib(moment['since_bytes'])}")
    return " | ".join(parts)


def render_cleaned(cleaned: Cleaned) -> list[str]:
    """A line of before, one of after, and what was freed."""
    words = [
        f"{units.size(freed)} {name}"
        for column, name in _FREED
        if (freed := cleaned.freed(column)) is not None
    ]
    lines = [render_memory_line(row) for row in (cleaned.before, cleaned.after)]
    took = cleaned.after["gc_ns"]
    if cleaned.garbage is not None and took is not None:
        found = plural(cleaned.garbage, "object")
        words.append(f"the collector found {found} in {units.duration(took * 1e-9)}")
    return [*lines, f"freed: {', '.join(words)}"]


def _title(moment: Row) -> str:
    batch = "" if moment["micro_batch"] is None else f".{moment['micro_batch']}"
    name = moment["phase"] if moment["label"] is None else escape_controls(moment["label"])
    return f"step {moment['step']}{batch} {name}"


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**30:.2f} GiB"


def _percent(moment: Row) -> str:
    if moment["node_used_bytes"] is None or not moment["node_total_bytes"]:
        return "-"
    return f"{moment['node_used_bytes'] / moment['node_total_bytes']:.1%}"
