"""What grows for a while and ends by itself: what is filled up, or mapped from a file.

Rules of this file: asked for by the rule of growing memory only; no rule of its own. A growth is
told as one of these by what the record says of it, never by its size alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....units import size
from ....leaks.history import Row, private_trend, virtual_trend
from ....leaks.series import Trend
from ...facts import Facts
from ...findings import Sign
from ...not_looked_at import NotLookedAt

REST = 0.5
"""What makes less than that of a growth is not what grows."""
YOUNG = 100
"""What is filled at first, as a queue between actors and a learner, takes some of these steps."""
_STILL_YOUNG = (
    "it grows in {steps} steps so far, and nobody was seen who keeps it: a queue, a cache or a pool"
    " that is being filled looks the same"
)
LATER = "Look again some minutes later: what was only filled grows no more then."


def still_young(facts: Facts, rows: Sequence[Row], trend: Trend) -> str:
    """That too few steps have grown to tell a leak from what is filled; empty where it is not so.

    Of what has ended nobody can wait for more.

    Args:
        rows: Those of `HISTORY`.
    """
    steps: int = max(row["step"] for row in rows) - (trend.first_step or 0)
    return _STILL_YOUNG.format(steps=steps) if facts.is_alive and steps < YOUNG else ""


def _is_of_files(facts: Facts, rows: Sequence[Row], trend: Trend) -> bool:
    """Whether what has come are pages of mapped files, and neither its own nor shared memory."""
    private = private_trend(rows)
    if private is None or max(private.rise, 0.0) > REST * trend.rise:
        return False
    try:
        held = sum(row["shm_bytes"] or 0 for row in facts.live("host_memory")[:1])
    except NotLookedAt:
        return False  # shared memory is mapped, too
    return held < REST * trend.rise


def filled(facts: Facts, rows: Sequence[Row], trend: Trend) -> str:
    """What was there before and is only touched step by step; empty where it is new memory."""
    if _is_of_files(facts, rows, trend):
        return "files that are mapped, whose pages the kernel drops when it needs them"
    virtual = virtual_trend(rows)
    if virtual is None or max(virtual.rise, 0.0) > REST * trend.rise:
        return ""
    return "memory that was allocated before, such as a buffer of fixed size that is filled"


def of_filled(trend: Trend, what: str) -> Sign:
    """A growth that is no new memory.

    Args:
        what: What is filled.
    """
    return Sign(
        certainty="possible",
        summary=f"The resident set grows by {size(trend.slope)} a step in {what}",
        since_step=trend.first_step,
        evidence=(f"it has grown by {size(trend.rise)} since step {trend.first_step}",),
        fix="Nothing, if that is meant: it ends with the file, or with the buffer.",
    )
