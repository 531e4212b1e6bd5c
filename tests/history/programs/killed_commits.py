"""Exports, compacts and commits to Iceberg, each time in a child that is killed on the way.

    killed_commits.py HOME HISTORY KILLS

A history may be a folder or in a store, where the mark of who was killed counts as old at once. As
long as any is killed, only children ask a store: one has the connections that this process had, and
would leave half a request there, or its answer.
Prints, as JSON, how many children were killed before their end, and how many rows there should be.
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

from probing.history.iceberg.committing import Commit, commit
from probing.history.stores import holding
from probing.history.stores.place import place_of
from probing.rundir.folders import RunDirectory
from tests.harness.cards import card_of
from tests.harness.gates import is_killed_at
from tests.harness.ring_writer import save_names, trace_values, trace_writer

NOBODY = 2**22 + 1
ROWS = 20


def main() -> None:
    home, history, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    holding._LEASE_NS = -1
    place = place_of(history, os.environ)
    folder = RunDirectory(home).create_folder(NOBODY, 77)
    folder.write_card(card_of(NOBODY, 77))
    save_names(folder.names, ["encoder", "decoder", "head", "Block"])
    writer, chance, died = trace_writer(capacity=1 << 16), random.Random(7), 0
    took_s = 0.2
    for number in range(kills):
        for seq in range(writer.written + 1, writer.written + 1 + ROWS):
            writer.write(**trace_values(seq))
        writer.save(folder.ring("torch_trace"))
        done_apart(lambda: place.export(folder))
        if number % 3 == 2:
            done_apart(place.compact)
        began = time.monotonic()
        child = begun(lambda: commit(history))
        if number:
            time.sleep(chance.uniform(0, took_s))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        died += os.WIFSIGNALED(status)
        if not number:
            took_s = time.monotonic() - began
    died += is_killed_at(Commit, "run", lambda: commit(history))
    place.compact()
    commit(history)
    print(json.dumps({"died": died, "rows": writer.written}))


def begun(work: Callable[[], object]) -> int:
    """A child that does some work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def done_apart(work: Callable[[], object]) -> None:
    """Have a child do some work to its end."""
    _, status = os.waitpid(begun(work), 0)
    assert status == 0, status


main()
