"""The storages alive at the end of a step, for a recording of allocations.

Rules of this file: runs in the training thread, while it stands between two steps.
"""

from __future__ import annotations

from ..shared.recording import Recording
from ..storage.births import births_of
from ..storage.storages import storages_now
from .tree import Census, Known


def take_census(recording: Recording, step: int | None) -> Census:
    """What is alive on the CPU, and what for.

    Args:
        step: The step that has ended; None before the first that is recorded.
    """
    sight = births_of(recording).sighting(step)
    return {
        one.address: Known(one.bytes, one.category, one.module, one.identity)
        for one in storages_now(recording, (), None, sight)
        if one.device == "cpu" and one.bytes
    }
