"""The storages alive at the end of a step, for a recording of allocations.

Rules of this file: runs in the training thread, while it stands between two steps.
"""

from __future__ import annotations

from ..recording import Recording
from ..storage.storages import storages_now
from .tree import Census, Known


def take_census(recording: Recording) -> Census:
    """What is alive on the CPU, and what for."""
    return {
        storage.address: Known(storage.bytes, storage.category, storage.module)
        for storage in storages_now(recording)
        if storage.device == "cpu" and storage.bytes
    }
