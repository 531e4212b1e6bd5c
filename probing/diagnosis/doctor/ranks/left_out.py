"""Optimizer steps that one rank leaves out while others make them, by what each did together.

Rules of this file: pure functions of rows. All ranks take part in the same collectives, so that
their numbers say which passes belong together. A rank that leaves out a step has the collectives of
two passes, and the passes, in one step, where the others have two. Who only takes part in the
collectives of others, as `Join` does for a rank whose data have ended, has no passes there; a
gradient scaler leaves out the step on all ranks alike.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Row = Mapping[str, Any]

STEPS = (
    "WITH calls AS (SELECT step, count(*) AS calls, min(seq) AS first, max(seq) AS last"
    "  FROM python.collectives WHERE op = 'all_reduce' AND process_group = '0' GROUP BY step)"
    " SELECT step, calls, first, last, micro_batches FROM calls JOIN python.steps USING (step)"
    " WHERE duration IS NOT NULL ORDER BY step DESC LIMIT 2000"
)
"""What each step did together with others: `left_out` takes its rows."""


def left_out(ranks: Mapping[int, Sequence[Row]]) -> dict[int, list[int]]:
    """The steps in which a rank has left out an optimizer step that another rank has made.

    Args:
        ranks: The rows of `STEPS`, by rank.

    Returns:
        Numbers of steps in rising order, by rank; none for ranks that left out nothing alone.
    """
    rows = [row for found in ranks.values() for row in found if row["micro_batches"]]
    if not rows:
        return {}
    calls = median(row["calls"] for row in rows)
    passes = median(row["micro_batches"] for row in rows)
    ends = {rank: sorted(row["last"] for row in own) for rank, own in ranks.items()}
    found = {}
    for rank, own in ranks.items():
        doubled = [
            row["step"]
            for row in own
            if row["calls"] >= 2 * calls
            and (row["micro_batches"] or 0) >= 2 * passes
            and any(_has_ended_in(row, ends[other]) for other in ranks if other != rank)
        ]
        if doubled:
            found[rank] = sorted(doubled)
    return found


def _has_ended_in(row: Row, ends: Sequence[int]) -> bool:
    """Whether a rank has ended a step, `ends` in rising order, within the collectives of one."""
    at = bisect_left(ends, row["first"])
    return at < len(ends) and ends[at] < row["last"]
