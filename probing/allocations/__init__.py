"""Recordings of allocations, read and compared at the operator's side.

Rules of this package: no torch, no numpy, nothing of the agent. A recording comes from the file
that an agent wrote, or from a snapshot in torch's own format; both become the same records, and
everything else is computed from those.

    recording   the records, and the file of an agent
    snapshots   torch's format: a pickle, read as data and never as code
    history     what became of each allocation; sites, peaks
    rows        the rows of python.alloc_events and python.alloc_blocks
    difference  two recordings side by side
    temporaries the most that was there for a moment, by module
"""

from __future__ import annotations

from .difference import Difference, compare, shared_devices
from .history import Allocation, History, Site, history_of
from .recording import Event, Frame, Recording, read_recording
from .rows import block_rows, event_rows
from .snapshots import read_snapshot, write_snapshot
from .temporaries import TemporaryPeak, temporary_peaks

__all__ = [
    "Allocation",
    "Difference",
    "Event",
    "Frame",
    "History",
    "Recording",
    "Site",
    "TemporaryPeak",
    "block_rows",
    "compare",
    "event_rows",
    "history_of",
    "read_recording",
    "read_snapshot",
    "shared_devices",
    "temporary_peaks",
    "write_snapshot",
]
