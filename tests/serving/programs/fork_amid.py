"""Forks while another thread makes a ring, and prints what files of rings the child has."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from fork_storm import files_of_agent  # type: ignore[import-not-found]

from probing.agent import lifecycle
from probing.ring import writer as recorder
from probing.ring.mapped_file import MappedFile
from probing.settings import Settings
from probing.tables import EVALS

PATIENCE_S = 0.5
"""How long the fork has time to come too early."""

making, is_late = threading.Event(), threading.Event()
map_file = MappedFile


def map_slowly(*args: Any, **kwargs: Any) -> MappedFile:
    """Map a file once the fork has had its time."""
    making.set()
    is_late.wait()
    return map_file(*args, **kwargs)


if __name__ == "__main__":
    agent = lifecycle.start(Settings.from_env(os.environ))
    recorder.MappedFile = map_slowly  # type: ignore[assignment, attr-defined]
    threading.Thread(target=agent.make_ring, args=(EVALS, 64)).start()
    making.wait()
    threading.Timer(PATIENCE_S, is_late.set).start()
    pid = os.fork()
    if pid == 0:
        print([path for path in files_of_agent() if path.endswith(".ring")], flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    os._exit(0)
