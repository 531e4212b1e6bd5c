"""Asks a run folder for a group-by a few times; prints seconds and its own peak memory."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from probing.client.providers import over_record
from probing.rundir.folders import ProcessFolder, folder_at
from tests.benchmarks.measures import measure_in_turn
from tests.benchmarks.memory import peak_kib, resident_kib

SQL = (
    "SELECT module, stage, count(*), avg(duration), max(duration)"
    " FROM python.torch_trace GROUP BY ALL ORDER BY 4 DESC"
)
TIMEOUT_S = 120.0
PIECE = 1 << 20


def ask(folder: ProcessFolder) -> float:
    """From the ring to the last row of the answer."""
    started = time.perf_counter()
    with over_record(folder, [], timeout_s=TIMEOUT_S).run_plain(SQL, timeout_s=TIMEOUT_S) as answer:
        groups = sum(batch.num_rows for batch in answer.batches())
    seconds = time.perf_counter() - started
    if not groups:
        raise RuntimeError("the ring has no readable rows")
    return seconds


def read(path: Path) -> float:
    """The least that reading the ring can cost: its bytes, once, piece by piece."""
    piece = bytearray(PIECE)
    started = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    return time.perf_counter() - started


def main(folder: str, rounds: int) -> dict[str, Any]:
    """Ask and read in turn."""
    place = folder_at(Path(folder))
    if place is None:
        raise RuntimeError(f"{folder} is not a run folder")
    ring = place.ring("torch_trace")
    before = resident_kib(os.getpid())["all"]
    query, raw = measure_in_turn(rounds, lambda: ask(place), lambda: read(ring))
    return {"query": query, "read": raw, "peak_kib": peak_kib(), "before_kib": before}


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
