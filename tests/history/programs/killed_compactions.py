"""Exports rows while compactions are killed at random moments; says what a query saw at each.

    killed_compactions.py HOME HISTORY KILLS [WHOLE_DAYS]

With WHOLE_DAYS older rows are rolled up, too. A history may be a folder or in a store, where the
mark of who was killed counts as old at once. Whatever is done there is done in forked children, as
separate processes as any. Between them rows of several days and processes are exported, each export
into files of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probing.history.compaction.compact import Compaction
from probing.history.compaction.keep import Keep
from probing.history.query import History
from probing.history.scanning import store as _store  # noqa: F401
from probing.history.stores import holding
from probing.history.stores.place import place_of
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.sql.database import load_whole
from probing.tables import TABLES_BY_NAME
from tests.harness.cards import card_of
from tests.harness.gates import is_killed_at
from tests.harness.ring_writer import RingWriter, save_names, trace_values

DAY_NS = 86_400 * 10**9
NOBODY = 2**22 + 1
"""The kernel gives no such number: a process that has ended."""
PROCESSES, ROWS = 2, 12
SUMS = """SELECT count(*) AS rows, count(DISTINCT (process_seq)) AS distinct_rows,
  (SELECT count(*) FROM probing.processes) AS processes
FROM (SELECT rank * 1000000 + seq AS process_seq FROM torch_trace)"""
CALLS = """SELECT CAST(sum(coalesce(calls, 1)) AS BIGINT) AS rows,
  CAST(round(sum(coalesce(total_s, duration)) * 1e6) AS BIGINT) AS took_us,
  (SELECT count(*) FROM probing.processes) AS processes FROM torch_trace"""
"""The same of rows that may be rolled up, which have no number; each took as long as its number."""


class Recorded:
    """A process and its ring."""

    def __init__(self, home: Path, rank: int) -> None:
        self.folder: ProcessFolder = RunDirectory(home).create_folder(NOBODY, 77 + rank)
        card = card_of(NOBODY, 77 + rank, job="llm", rank=rank, world_size=PROCESSES)
        self.folder.write_card(card)
        save_names(self.folder.names, ["encoder", "decoder", "head", "Block"])
        self._ring = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=8192)

    def export(self, history: str) -> int:
        """Record rows of three days, and export them; returns how many there are by then."""
        for _ in range(ROWS):
            number = self._ring.written + 1
            at_ns = number % 3 * DAY_NS + number
            changed = {"step": number // ROWS, "stage": 0, "duration_ns": number * 1000}
            self._ring.write(**{**trace_values(number), **changed, "start_ns": at_ns})
        self._ring.save(self.folder.ring("torch_trace"))
        wait_for(child(lambda: place_of(history, os.environ).export(self.folder).run))
        return self._ring.written


def main() -> None:
    home, history, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    keep = Keep(whole_days=int(sys.argv[4])) if sys.argv[4:] else Keep()
    holding._LEASE_NS = -1
    load_whole()  # once, and not in each child
    seed = int.from_bytes(os.urandom(4), "little")
    chance = random.Random(seed)
    processes = [Recorded(home, rank) for rank in range(PROCESSES)]
    wanted = [sum(one.export(history) for one in processes)]
    seen = [look(history, keep)]
    took_s, half_done = 0.0, 0
    wanted.append(sum(one.export(history) for one in processes))
    died = int(is_killed_at(Compaction, "run", lambda: compacted(history, keep)))
    seen.append(look(history, keep))
    for number in range(kills + 1):
        wanted.append(sum(one.export(history) for one in processes))
        began = time.perf_counter()
        one = child(lambda: compacted(history, keep))
        if number:
            time.sleep(chance.uniform(0, took_s))
            os.kill(one[0], signal.SIGKILL)
        was_killed = wait_for(one) is None
        died += was_killed
        # One that had ended before its kill was quicker than thought, and the other way about.
        took_s = took_s * (1.3 if was_killed else 0.5) if number else time.perf_counter() - began
        half_done += (Path(history) / "_probing" / "compaction" / "swap.json").exists()
        seen.append(look(history, keep))
    notes = wait_for(child(lambda: compacted(history, keep)))
    print(
        json.dumps(
            {
                "seed": seed,
                "died": died,
                "half_done": half_done,
                "wanted": [expected(rows, keep) for rows in [*wanted, wanted[-1]]],
                "seen": [*seen, look(history, keep)],
                "notes": notes,
            }
        )
    )


def expected(rows: int, keep: Keep) -> list[int]:
    """What a query is to find where so many rows were exported, as many of each process."""
    of_each = rows // PROCESSES
    took_us = PROCESSES * of_each * (of_each + 1) // 2
    return [rows, rows if keep.whole_days is None else took_us, PROCESSES]


def look(history: str, keep: Keep) -> Any:
    """How many rows a query finds, how many of them are not the same, and how many processes.

    Of rows that may be rolled up, in place of the second, how long they took together.
    """
    sql = SUMS if keep.whole_days is None else CALLS

    def ask() -> Any:
        (row,) = History(history).query(sql, timeout_s=60).to_pylist()
        return list(row.values())

    return wait_for(child(ask))


def compacted(history: str, keep: Keep) -> Any:
    """Put small files together; what was not done, and why."""
    return place_of(history, os.environ).compact(keep).notes


def child(function: Callable[[], Any]) -> tuple[int, int]:
    """A forked child that does something, and where its answer comes."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        code = 1
        try:
            os.write(writes, json.dumps(function()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writes)
    return pid, reads


def wait_for(one: tuple[int, int]) -> Any:
    """The answer of a child; None of one that was killed."""
    pid, reads = one
    with os.fdopen(reads, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return None if os.WIFSIGNALED(status) else json.loads(answer)


main()
