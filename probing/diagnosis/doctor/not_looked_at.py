"""What a rule says where it cannot be judged.

Rules of this file: no more than that, so that facts and rules may both say it.
"""

from __future__ import annotations

LATE = "the looks before it took longer than"
"""How the message begins where there was no time left."""


class NotLookedAt(Exception):
    """A rule cannot be judged; the message says why."""
