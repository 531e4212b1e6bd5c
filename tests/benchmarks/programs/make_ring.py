"""Makes a run folder with a full ring of torch_trace of so many rows; prints where it is.

The ring has gone round: its oldest row is not in its first slot. The rows are those of a GPT:
the same modules step after step, each with its time.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probing.linux import process
from probing.ring import format as ring
from probing.rundir.folders import from_env
from probing.tables import TORCH_TRACE
from tests.harness.name_lists import encode_names

CHUNK = 1 << 20
MODULES = 88
_NUMPY_CODES = {"q": "<i8", "d": "<f8", "I": "<u4", "B": "u1"}


def row_type(layout: ring.RingLayout) -> npt.DTypeLike:
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


def make_rows(dtype: npt.DTypeLike, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
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
    rows["thread_id"] = os.getpid()
    rows["start_ns"] = numbers * 1_000
    rows["duration_ns"] = 1_000 + numbers * 7919 % 1_000_000
    rows["allocated_bytes"] = 1 << 30
    return rows


def main(rows: int) -> str:
    """Write ring and names."""
    pid = os.getpid()
    folder = from_env().create_folder(pid, process.start_time(pid) or 0)
    layout = ring.layout_of(TORCH_TRACE)
    header = ring.encode_header(layout, capacity=rows, clock_offset_ns=0)
    newest = rows + rows // 3
    with folder.ring(TORCH_TRACE.name).open("wb") as file:
        file.write(header)
        for first in range(0, rows, CHUNK):
            slots = np.arange(first, min(first + CHUNK, rows), dtype=np.int64)
            numbers = newest - (newest - slots) % rows
            file.write(make_rows(row_type(layout), numbers).tobytes())
    texts = (f"blocks.{number // 14}.part.{number % 14}" for number in range(MODULES))
    folder.names.write_bytes(encode_names(texts))
    return str(Path(folder.path))


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
