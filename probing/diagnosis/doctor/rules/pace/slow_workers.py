"""Which data worker makes a training wait, where one is slower than the others.

Rules of this file: asks the loaders, and is no rule itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....units import duration
from ...facts import Facts, Row
from ...not_looked_at import NotLookedAt

_SLOW_WORKER = 3.0
"""One worker is slow where its batches are waited for by so many times as long as the others'."""
_LOOKS = 8
_BETWEEN_LOOKS_S = 0.07
"""A worker that stands out is looked at so often, to see what the others do meanwhile."""


def slow_worker(
    facts: Facts, batches: Sequence[Row], loaders: Sequence[Row]
) -> tuple[list[str], list[str]]:
    """Whose batches are waited for longest, where one worker stands out.

    Args:
        batches: The newest that were waited for.
        loaders: Those that are waited for; others number their workers from 0, too.

    Returns:
        That it is slower than the others; and, where it may only be the first of those that make
        their batches at the same time, that its batches are waited for.
    """
    waits: dict[int, list[float]] = {}
    of = loaders[0]["loader"] if loaders else None
    for row in batches:
        if row["worker"] is not None and of in (None, row["loader"]):
            waits.setdefault(row["worker"], []).append(row["duration"])
    if len(waits) < 2 or min(map(len, waits.values())) < 3:
        return [], []
    usual = {worker: float(np.median(found)) for worker, found in waits.items()}
    slowest = max(usual, key=lambda worker: usual[worker])
    others = float(np.median([value for worker, value in usual.items() if worker != slowest]))
    if usual[slowest] < _SLOW_WORKER * max(others, 1e-4):
        return [], []
    looks = [row for row in _looks_at(facts, slowest) if of in (None, row["loader"])]
    idle = [bool(row["outstanding"] <= row["tasks"]) for row in looks]
    if idle and sum(idle) <= len(idle) / 2:
        return [], []
    name = f"worker {slowest}" + (f" (pid {looks[0]['pid']})" if idle and looks[0]["pid"] else "")
    figures = f"{duration(usual[slowest])} a batch, the others {duration(others)}"
    if idle:
        return [f"mostly for {name}, while the others have nothing to do: {figures}"], []
    return [], [
        f"mostly for {name}: {figures}; it is slower than the others, or all make their batches"
        " at the same time and its own is the first to be waited for"
    ]


def _looks_at(facts: Facts, worker: int) -> list[dict[str, Any]]:
    """What a loader's worker was seen to do, each time the training waited for it.

    Which worker is waited for tells nothing of which is slow: of workers that are equally slow and
    began together, the first is waited for, and the batches of all others lie ready a moment later.
    One that is slower by itself leaves the others idle: no batch is outstanding but its own.
    """

    def look() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        for number in range(_LOOKS):
            if number:
                time.sleep(_BETWEEN_LOOKS_S)
            rows = facts.process.live("dataloaders").dicts()
            seen += [r for r in rows if r["waiting"] and r["awaited"] and r["worker"] == worker]
        return seen

    try:
        return facts.ask("loader at work", look)
    except NotLookedAt:
        return []
