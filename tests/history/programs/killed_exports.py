"""Writes rows into a ring while exports of it are killed at random moments; says what came of it.

    killed_exports.py HOME HISTORY KILLS CAPACITY

A history may be a folder or in a store.
The exports run in forked children, as separate processes as any. Rows are of several days, so that
one export writes several files; one of each batch is complete some batches later, so that the next
export does not write the same files again.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
from pathlib import Path

from probing.history.export import _Export
from probing.history.stores.place import Place, place_of
from probing.linux import process
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.tables import TABLES_BY_NAME
from tests.harness.cards import card_of
from tests.harness.gates import is_killed_at
from tests.harness.ring_writer import RingWriter, trace_values

_DAY_NS = 86_400 * 10**9
_ROWS = 40
_LATE = 3
"""After so many batches the first row of one is complete."""
_PER_DAY = 16


def main() -> None:
    home, history = Path(sys.argv[1]), place_of(sys.argv[2], os.environ)
    kills, capacity = int(sys.argv[3]), int(sys.argv[4])
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    folder = made(home)
    writer = ring(folder, capacity)
    late: list[dict[str, float]] = []
    write(writer, late)
    began = time.perf_counter()
    _, status = os.waitpid(child(folder, history), 0)
    took_s = time.perf_counter() - began
    died = 0
    for number in range(kills):
        write(writer, late)
        pid = child(folder, history)
        time.sleep(chance.uniform(0, took_s) if number else 0)
        os.kill(pid, signal.SIGKILL)
        _, ended = os.waitpid(pid, 0)
        died += os.WIFSIGNALED(ended)
    write(writer, late)
    died += is_killed_at(_Export, "run", lambda: history.export(folder))
    complete(writer, late, 0)
    _, last = os.waitpid(child(folder, history), 0)
    print(
        json.dumps({"seed": seed, "died": died, "codes": [status, last], "written": writer.written})
    )


def made(home: Path) -> ProcessFolder:
    """The run folder of this very process, which lives."""
    started = process.start_time(os.getpid())
    assert started is not None
    folder = RunDirectory(home).create_folder(os.getpid(), started)
    folder.write_card(card_of(os.getpid(), started))
    return folder


def ring(folder: ProcessFolder, capacity: int) -> RingWriter:
    """Its ring, mapped."""
    writer = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=capacity)
    path = writer.save(folder.ring("torch_trace"))
    with path.open("r+b") as file:
        writer.data = mmap.mmap(file.fileno(), 0)
    return writer


def write(writer: RingWriter, late: list[dict[str, float]]) -> None:
    """A batch of rows."""
    for place in range(_ROWS):
        number = writer.written + 1
        day = number // _PER_DAY * _DAY_NS - 10_000 * _DAY_NS
        values = {**trace_values(number), "start_ns": day + number}
        if place:
            writer.write(**values)
        else:
            writer.open(**values)
            late.append({"number": number, **values})
    complete(writer, late, _LATE)


def complete(writer: RingWriter, late: list[dict[str, float]], left: int) -> None:
    """Close the oldest rows that are open, if they are in the ring."""
    while len(late) > left:
        values = late.pop(0)
        number = int(values.pop("number"))
        if number > writer.written - writer.capacity:
            writer.close(number, failed=False, **values)


def child(folder: ProcessFolder, history: Place) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            history.export(folder)
            code = 0
        finally:
            os._exit(code)
    return pid


main()
