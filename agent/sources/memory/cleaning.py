"""Collects garbage and gives memory back, for who has asked for it.

Rules of this file: runs in the training thread, at a safe point or where the script says so; may
take tens of milliseconds. Imports what it needs when it is first asked.
"""

from __future__ import annotations

import gc
import time

from ....ring.format import NULL_INT
from ....script.marks import Cleaning
from ..accelerator import Accelerator


def clean(accelerator: Accelerator, cleaning: Cleaning) -> tuple[int, int]:
    """Do what comes before memory is read.

    Returns:
        How long collecting garbage took, in ns, and how many objects it found; `NULL_INT` twice
        where none was asked for.
    """
    took, found = NULL_INT, NULL_INT
    if cleaning.gc:
        start = time.perf_counter_ns()
        found = gc.collect()
        took = time.perf_counter_ns() - start
    if cleaning.empty_cache and not accelerator.empty_cache():
        from ....linux.limited_memory import give_back_memory

        give_back_memory()
    return took, found
