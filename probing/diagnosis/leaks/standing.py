"""Graphs of earlier steps that are still there, seen at one moment.

Rules of this file: pure functions of rows of python.tensors. As a step ends, its graphs are gone,
or a last one is left; as the next backward pass begins, there is all that one pass needs. What is
there many times more often than one pass needs it is of graphs that somebody keeps, however many
steps lie between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ...messages.frozen import dataclass
from .history import Row

_TIMES = 4
"""So many times what one pass saves must be there: an evaluation, or the last loss, keeps less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGraphs:
    """What is saved by graphs of earlier steps.

    Attributes:
        times: How many passes it is of, at the most: so often the rarest of it is there.
        bytes: All of it.
        rows: The rows of the largest kind.
    """

    times: int
    bytes: int
    rows: tuple[Row, ...]


def kept_graphs(tensors: Iterable[Row]) -> KeptGraphs | None:
    """The graphs that are kept; None where there are none."""
    at_end: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    in_pass: defaultdict[tuple[str, ...], int] = defaultdict(int)
    moments = set()
    for row in tensors:
        moments.add(row["moment"])
        if row["category"] == "activations":
            kind = (row["module"] or "", row["dtype"], row["shape"], row["device"])
            if row["moment"] == "now":
                at_end[kind].append(row)
            else:
                in_pass[kind] += 1
    if len(moments) < 2:
        return None
    kept = [
        rows
        for kind, rows in at_end.items()
        if len(rows) >= _TIMES * max(1, in_pass[kind] - len(rows))
    ]
    if not kept:
        return None
    largest = max(kept, key=lambda rows: sum(row["bytes"] for row in rows))
    return KeptGraphs(
        times=min(len(rows) for rows in kept),
        bytes=sum(row["bytes"] for rows in kept for row in rows),
        rows=tuple(largest),
    )
