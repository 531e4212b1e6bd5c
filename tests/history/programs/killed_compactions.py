"""Exports rows while compactions are killed at random moments; says what a query saw at each.

    killed_compactions.py HOME HISTORY KILLS

Compactions run in forked children, as separate processes as any. Between them rows of several days
and processes are exported, each export into files of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from probing.history.compaction.compact import compact
from probing.history.export import export_process
from probing.history.query import History
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.tables import TABLES_BY_NAME
from tests.harness.cards import card_of
from tests.harness.ring_writer import RingWriter, save_names, trace_values

DAY_NS = 86_400 * 10**9
NOBODY = 2**22 + 1
"""The kernel gives no such number: a process that has ended."""
PROCESSES, ROWS = 2, 12
SUMS = """SELECT count(*) AS rows, count(DISTINCT (process_seq)) AS distinct_rows,
  (SELECT count(*) FROM probing.processes) AS processes
FROM (SELECT rank * 1000000 + seq AS process_seq FROM torch_trace)"""


class Recorded:
    """A process and its ring."""

    def __init__(self, home: Path, rank: int) -> None:
        self.folder: ProcessFolder = RunDirectory(home).create_folder(NOBODY, 77 + rank)
        card = card_of(NOBODY, 77 + rank, job="llm", rank=rank, world_size=PROCESSES)
        self.folder.write_card(card)
        save_names(self.folder.names, ["encoder", "decoder", "head", "Block"])
        self._ring = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=8192)

    def export(self, history: Path) -> int:
        """Record rows of three days, and export them; returns how many there are by then."""
        for _ in range(ROWS):
            number = self._ring.written + 1
            at_ns = number % 3 * DAY_NS + number
            self._ring.write(**{**trace_values(number), "start_ns": at_ns})
        self._ring.save(self.folder.ring("torch_trace"))
        export_process(self.folder, history)
        return self._ring.written


def main() -> None:
    home, history, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    processes = [Recorded(home, rank) for rank in range(PROCESSES)]
    wanted = [sum(one.export(history) for one in processes)]
    seen = [look(history)]
    took_s, died, half_done = 0.0, 0, 0
    for number in range(kills + 1):
        wanted.append(sum(one.export(history) for one in processes))
        began = time.perf_counter()
        pid = child(history)
        if number:
            time.sleep(chance.uniform(0, took_s))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        took_s = took_s or time.perf_counter() - began
        died += os.WIFSIGNALED(status)
        half_done += (history / "_probing" / "compaction" / "swap.json").exists()
        seen.append(look(history))
    done = compact(history)
    print(
        json.dumps(
            {
                "seed": seed,
                "died": died,
                "half_done": half_done,
                "wanted": [[rows, rows, PROCESSES] for rows in [*wanted, wanted[-1]]],
                "seen": [*seen, look(history)],
                "notes": done.notes,
            }
        )
    )


def look(history: Path) -> list[Any]:
    """How many rows a query finds, how many of them are not the same, and how many processes."""
    (row,) = History(str(history)).query(SUMS, timeout_s=60).to_pylist()
    return list(row.values())


def child(history: Path) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            compact(history)
            code = 0
        finally:
            os._exit(code)
    return pid


main()
