"""Exports, compacts and commits to Iceberg, each time in a child that is killed on the way.

Prints, as JSON, how many children were killed before their end, and how many rows there should be.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from probing.history.compaction.compact import compact
from probing.history.export import export_process
from probing.history.iceberg.committing import commit
from probing.rundir.folders import RunDirectory
from tests.harness.cards import card_of
from tests.harness.ring_writer import save_names, trace_values, trace_writer

NOBODY = 2**22 + 1
ROWS = 20


def main() -> None:
    home, root, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    folder = RunDirectory(home).create_folder(NOBODY, 77)
    folder.write_card(card_of(NOBODY, 77))
    save_names(folder.names, ["encoder", "decoder", "head", "Block"])
    writer, chance, died = trace_writer(capacity=1 << 16), random.Random(7), 0
    took_s = 0.2
    for number in range(kills):
        for seq in range(writer.written + 1, writer.written + 1 + ROWS):
            writer.write(**trace_values(seq))
        writer.save(folder.ring("torch_trace"))
        export_process(folder, root)
        if number % 3 == 2:
            compact(root)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            commit(root)
            os._exit(0)
        if number:
            time.sleep(chance.uniform(0, took_s))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        died += os.WIFSIGNALED(status)
        if not number:
            took_s = time.monotonic() - began
    compact(root)
    commit(root)
    print(json.dumps({"died": died, "rows": writer.written}))


main()
