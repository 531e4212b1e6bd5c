"""What a look at all tensors at once tells of memory that grows, where a watch of steps has not.

Rules of this file: asked for by the rule of growing memory only; no rule of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from .....units import size
from ....leaks.series import Trend
from ....leaks.standing import KeptGraphs, kept_graphs
from ....leaks.words import TITLES, WAYS_OUT, variable_of
from ....memory.memory_report import referrers_of
from ...facts import Facts
from ...not_looked_at import NotLookedAt

_MOST_OF_RISE = 0.5
"""Graphs that make less of what memory has grown by are not what grows."""
_LEAST_S = 2.0
_ASKED = 2
_SOUGHT_S = 4.0


class Standing(NamedTuple):
    """What is kept, and by whom.

    Attributes:
        summary: A clause that goes on a sentence about memory that grows.
        evidence: What was seen.
        fix: What to do.
    """

    summary: str
    evidence: str
    fix: str


def standing_graphs(facts: Facts, trend: Trend) -> Standing | None:
    """Graphs of earlier steps that explain a growth; None where none are seen, or nobody can look.

    Args:
        trend: How memory has grown.
    """
    try:
        limit_s = min(4.0, max(1.0, 3 * facts.now().median_s))
        if facts.seconds_left < _LEAST_S:
            return None
        rows = facts.ask("tensors", lambda: facts.process.live("tensors", wait_s=limit_s).dicts())
        kept = kept_graphs(rows)
        if kept is None or kept.bytes < _MOST_OF_RISE * trend.rise:
            return None
        path, line = _holder(facts, kept)
    except NotLookedAt:
        return None
    module = f" in {kept.rows[0]['module']}" if kept.rows[0]["module"] else ""
    where = f" by {path}{line}" if path else ""
    return Standing(
        summary=f"{TITLES['graph']}{where}, those of {kept.times} passes of earlier steps",
        evidence=f"{size(kept.bytes)} are saved for backward passes as a step ends, most of it"
        f" {len(kept.rows)} times {kept.rows[0]['shape'].replace(',', ' x ')}{module}",
        fix=(WAYS_OUT["graph"] if not path else _DETACH.format(name=path)) + ".",
    )


def _holder(facts: Facts, kept: KeptGraphs) -> tuple[str, str]:
    """What keeps them, and the line that adds to it; empty where that is not seen."""
    try:
        found, _ = facts.ask(
            "referrers",
            lambda: referrers_of(facts.process, kept.rows[:_ASKED], timeout_s=_SOUGHT_S),
        )
    except NotLookedAt:
        return "", ""
    rows = [row for rows in found.values() for row in rows if row["path"]]
    if not rows:
        return "", ""
    place = (rows[0]["file"] or "").rpartition("/")[2]
    line = f" ({place}:{rows[0]['lineno']})" if rows[0]["lineno"] else ""
    return variable_of(rows[0]["path"]), line


_DETACH = (
    "Keep numbers, not tensors with a graph: `.item()`, or `.detach()`, before it comes to `{name}`"
)
