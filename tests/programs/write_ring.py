"""Writes rows into a ring file as fast as it can: ``write_ring.py FILE CAPACITY ROWS``.

Every column follows from the row's number (`tests.ring_writer.trace_values`). ROWS may be 0
for no end but SIGTERM. Prints ``ready`` once the ring has been filled, and at the end how many rows
it has written.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.harness.ring_writer import trace_values, trace_writer


def main(path: str, capacity: int, rows: int) -> None:
    """Fill the ring once, say so, and go on."""
    writer = trace_writer(capacity=capacity)
    writer.save(Path(path + ".new"))
    fd = os.open(path + ".new", os.O_RDWR)
    writer.data = mmap.mmap(fd, 0)
    os.replace(path + ".new", path)
    asked_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_end.append(number))
    while not asked_to_end and (not rows or writer.written < rows):
        writer.write(**trace_values(writer.written + 1))
        if writer.written == capacity:
            print("ready", flush=True)
    print(writer.written, flush=True)


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
