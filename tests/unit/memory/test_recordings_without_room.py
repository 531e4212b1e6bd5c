"""Recordings of allocations that end where their file cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.on_demand.memory_recording import MemoryRecordings
from probing.errors import InternalError
from probing.messages.about.allocation import RecordRequest
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


class FullHistory:
    """A history that is on, and for whose file the disk has no room."""

    def __init__(self) -> None:
        self.is_on = True
        self.entries = 1000

    def save(self, path: Path) -> None:
        """Fail as a full disk does."""
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def stop(self) -> None:
        """See `DeviceHistory`."""
        self.is_on = False


def test_a_recording_ends_on_a_full_disk(tmp_path: Path) -> None:
    """The error says why nothing is kept, and the allocator keeps its history no more."""
    nothing: Any = SimpleNamespace(allocations=tmp_path / "a.gz", is_recording=lambda: True)
    recordings = MemoryRecordings(nothing, lambda: nothing, nothing)
    history: Any = FullHistory()
    recordings._history = history
    future = recordings.change(RecordRequest(state="off"))
    with pytest.raises(InternalError, match="cannot be written: No space left on device"):
        future.result(DEADLINE_S)
    assert recordings.status().state == "off"
    assert not history.is_on
