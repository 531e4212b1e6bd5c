"""The rows of python.flight_recorder, from torch's own record of collectives.

Rules of this file: runs in the agent's thread, and issues nothing. Torch is asked only where it has
a process group, and for no stacks, whose lines it takes seconds to name: it holds the interpreter
lock while it answers, so no limit of ours could end an answer that takes long. NCCL's recorder asks
the device of each entry that is not over, which would break the capture of a CUDA graph: so it is
not asked while there is one. What the recorder has wrong is put right: groups are named by its
entries, not by its list of groups; an end is what it has retired, not what a state says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from ....messages.common import LiveRows
from ....tables import FLIGHT_RECORDER
from ..accelerator import captures

_DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
"""NCCL has a recorder of its own; every other backend is in the second one."""
_NO_GROUP = "this process has no process group, so torch has recorded no collective"
_OFF = (
    "torch's flight recorder has nothing: there has been no collective, or it was set off"
    " (TORCH_FR_BUFFER_SIZE=0; older versions have it off unless TORCH_NCCL_TRACE_BUFFER_SIZE=2000)"
)
_CAPTURING = "a CUDA graph is being captured, which the question would break: ask again"
_NONE = "this torch has no flight recorder that can be read"
_MS = 1e-3
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "Byte": "uint8",
    "Char": "int8",
}
"""Those that C++ names otherwise than Python."""


def flight_recorder_rows() -> LiveRows:
    """The rows now; none, and a note that says why, where there is nothing to be read."""
    python: Any = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(python, "_world", None)
    if world is None or not world.pg_map:
        return LiveRows.of_dicts(FLIGHT_RECORDER, [], _NO_GROUP)
    c10d = sys.modules.get("torch._C._distributed_c10d")
    dumps = [getattr(c10d, name) for name in _DUMPS if hasattr(c10d, name)]
    if not dumps:
        return LiveRows.of_dicts(FLIGHT_RECORDER, [], _NONE)
    with captures.quiet() as may_ask:
        if not may_ask:
            return LiveRows.of_dicts(FLIGHT_RECORDER, [], _CAPTURING)
        texts = [dump(includeCollectives=True, onlyActive=False) for dump in dumps]
    rows = [row for text in texts if text for row in rows_of_dump(json.loads(text))]
    return LiveRows.of_dicts(FLIGHT_RECORDER, rows, None if rows else _OFF)


def rows_of_dump(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a dump as torch writes it, whichever of its fields are there."""
    entries = dump.get("entries") or ()
    completed = {
        str(group): _number(status.get("last_completed_collective"))
        for group, status in (dump.get("pg_status") or {}).items()
    }
    return [_row(entry, completed) for entry in entries]


def _row(entry: Mapping[str, Any], completed: Mapping[str, int | None]) -> dict[str, Any]:
    name, description = _group_of(entry)
    backend, _, op = str(entry.get("profiling_name", "")).rpartition(":")
    is_p2p = bool(entry.get("is_p2p"))
    seq = _number(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id"))
    last = completed.get(str(entry.get("pg_id")))
    is_counted = not is_p2p and seq is not None and last is not None and seq <= last
    state = entry.get("state")
    timeout, took = _number(entry.get("timeout_ms")), entry.get("duration_ms")
    return {
        "record_id": _number(entry.get("record_id")),
        "process_group": name,
        "description": description,
        "backend_seq": seq,
        "backend": backend or None,
        "op": op or None,
        "shapes": _joined(str(list(size)).replace(" ", "") for size in _list(entry, "input_sizes")),
        "dtypes": _joined(dict.fromkeys(_dtype(name) for name in _list(entry, "input_dtypes"))),
        "is_p2p": is_p2p,
        "state": state,
        "is_over": state == "completed" or bool(entry.get("retired")) or is_counted,
        "timeout_s": None if timeout is None else timeout * _MS,
        "created_ns": _number(entry.get("time_created_ns")),
        "started_ns": _number(entry.get("time_discovered_started_ns")) or None,
        "completed_ns": _number(entry.get("time_discovered_completed_ns")) or None,
        "device_s": None if took is None else float(took) * _MS,
    }


def _group_of(entry: Mapping[str, Any]) -> tuple[str | None, str | None]:
    name, *rest = entry.get("process_group") or (None,)
    description = rest[0] if rest else None
    return name, None if description in ("", "undefined") else description


def _dtype(name: str) -> str:
    return _DTYPES.get(name, name.lower())


def _list(entry: Mapping[str, Any], field: str) -> list[Any]:
    """A field that may be missing."""
    return list(entry.get(field) or ())


def _joined(parts: Any) -> str | None:
    return ";".join(parts) or None


def _number(value: Any) -> int | None:
    """An integer, which older versions write as a text; None for what is none."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
