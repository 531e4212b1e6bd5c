"""The live table ``python.device_checks``: whether each device computes, now.

Rules of this file: runs in a thread of the agent's own, for who asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...messages.common import LiveRows
from ...tables import DEVICE_CHECKS

if TYPE_CHECKING:
    from ..live.question import LiveQuestion


def rows(question: LiveQuestion) -> LiveRows:
    """A row for each device that the process can see."""
    found = question.training.check_devices()
    note = None if found else "no accelerator is in use: none was checked"
    return LiveRows.of(DEVICE_CHECKS, found, note)
