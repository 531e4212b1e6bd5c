"""Rings of many rows, made at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probing.ring import format as ring
from probing.tables import TORCH_TRACE

MODULES = 88
_CHUNK = 1 << 20
_NUMPY_CODES = {"q": "<i8", "d": "<f8", "I": "<u4", "B": "u1"}


def large_ring(path: Path, *, rows: int) -> Path:
    """Write a full ring of torch_trace that has gone round: its oldest row is in the middle.

    Its rows are those of a GPT: the same modules step after step, each with its time.
    """
    layout = ring.layout_of(TORCH_TRACE)
    newest = rows + rows // 3
    with path.open("wb") as file:
        file.write(ring.encode_header(layout, capacity=rows, clock_offset_ns=0))
        for first in range(0, rows, _CHUNK):
            slots = np.arange(first, min(first + _CHUNK, rows), dtype=np.int64)
            numbers = newest - (newest - slots) % rows
            file.write(_make_rows(_row_type(layout), numbers).tobytes())
    return path


def _row_type(layout: ring.RingLayout) -> npt.DTypeLike:
    """A row as numpy sees it."""
    fields = (*layout.opening, *layout.closing)
    return np.dtype(
        {
            "names": ["begin", *(f.column.name for f in fields), "end"],
            "formats": ["<u8", *(_NUMPY_CODES[f.code] for f in fields), "<u8"],
            "offsets": [0, *(f.offset for f in fields), layout.row_size - 8],
            "itemsize": layout.row_size,
        }
    )


def _make_rows(dtype: npt.DTypeLike, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Completed rows of these numbers."""
    rows = np.zeros(len(numbers), dtype)
    rows["begin"] = numbers * 4 + ring.OPEN
    rows["end"] = numbers * 4 + ring.DONE
    rows["step"] = numbers // MODULES
    rows["module"] = 1 + numbers % MODULES
    rows["class"] = 1 + numbers % 7
    rows["root"] = 1
    rows["depth"] = numbers % 5
    rows["training"] = 1
    rows["thread_id"] = 77
    rows["start_ns"] = numbers * 1_000
    rows["duration_ns"] = 1_000 + numbers * 7919 % 1_000_000
    rows["allocated_bytes"] = 1 << 30
    return rows
