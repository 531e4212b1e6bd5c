"""Since which step the loss of a training has not been finite.

Rules of this file: reads python.steps, by a query or from its file; a step whose loss is not known
counts for nothing. One finite loss ends it: a single step that a gradient scaler leaves out is no
lost training. The agent writes the first step into each row that follows, so that it outlives its
own row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import RingError
from ..messages.frozen import dataclass
from ..ring.peek import RingPeek
from ..rundir.folders import ProcessFolder
from ..tables import STEPS

SINCE = (
    "WITH known AS (SELECT step, loss, not_finite_since FROM python.steps"
    " WHERE loss_finite IS NOT NULL"
    " AND step >= coalesce((SELECT max(step) FROM python.steps WHERE loss_finite), -1))"
    " SELECT step, loss, not_finite_since FROM known ORDER BY step LIMIT 2"
)
"""The newest step with a finite loss, if there is one, and the step after it."""
_UNKNOWN = 64
"""So many of the newest steps may have a loss that is not known yet, or has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite:
    """A loss that is not finite any more.

    Attributes:
        step: The first step whose loss was not.
        is_nan: Whether it was NaN; else it was infinite.
        is_whole: Whether it is known that the loss was finite before, or that none was.
    """

    step: int
    is_nan: bool
    is_whole: bool

    def sentence(self) -> str:
        """It in words."""
        what = "NaN" if self.is_nan else "infinite"
        since = f"since step {self.step}"
        if not self.is_whole:
            since += ", the first on record, or longer"
        return f"the loss has been {what} {since}"


def since_of(rows: Iterable[Mapping[str, Any]]) -> NotFinite | None:
    """What the rows of `SINCE` say; None where the newest loss is finite, or none is known."""
    found = list(rows)
    bad = [row for row in found if row["loss"] is not None and not math.isfinite(row["loss"])]
    if not bad:
        return None
    first = bad[0]
    told, is_nan = first.get("not_finite_since"), math.isnan(first["loss"])
    if told is not None:
        return NotFinite(step=int(told), is_nan=is_nan, is_whole=True)
    return NotFinite(step=int(first["step"]), is_nan=is_nan, is_whole=first is not found[0])


def peek_since(folder: ProcessFolder) -> NotFinite | None:
    """The same from the file of the record, newest step first; None where it cannot be read."""
    try:
        with RingPeek(folder.ring(STEPS.name)) as ring:
            return _peeked(ring)
    except (OSError, RingError):
        return None


def _peeked(ring: RingPeek) -> NotFinite | None:
    newest = ring.newest_seq()
    first: tuple[int, float] | None = None
    for number in range(newest, max(0, newest - ring.header.capacity), -1):
        row = ring.row(number, ("step", "loss", "not_finite_since"))
        told = None if row is None else row.values.get("not_finite_since")
        loss, step = (None, None) if row is None else (row.values["loss"], row.values["step"])
        if loss is None or step is None:
            if first is None and newest - number > _UNKNOWN:
                return None
            continue
        if told is not None and not math.isfinite(loss):
            return _found((int(told), loss), is_whole=True)
        if math.isfinite(loss):
            return _found(first, is_whole=True)
        first = int(step), loss
    return _found(first, is_whole=False)


def _found(first: tuple[int, float] | None, *, is_whole: bool) -> NotFinite | None:
    if first is None:
        return None
    return NotFinite(step=first[0], is_nan=math.isnan(first[1]), is_whole=is_whole)
