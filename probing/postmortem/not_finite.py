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
    " SELECT step, loss, not_finite_since FROM known"
    " QUALIFY row_number() OVER (ORDER BY step) <= 2 OR step = max(step) OVER () ORDER BY step"
)
"""The newest step with a finite loss, if there is one, the step after it, and the newest."""
_WORDS = {True: "NaN", False: "infinite"}
_UNKNOWN = 64
"""So many of the newest steps may have a loss that is not known yet, or has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite:
    """A loss that is not finite any more.

    Attributes:
        step: The first step whose loss was not.
        was_nan: Whether it was NaN there, else it was infinite; None where that is not known.
        is_nan: Whether it is NaN in the newest step, else it is infinite.
        is_whole: Whether it is known that the loss was finite before, or that none was.
    """

    step: int
    was_nan: bool | None
    is_nan: bool
    is_whole: bool

    def sentence(self, of: str = "") -> str:
        """It in words: of which kind it has been, where it is the same from first to last.

        Args:
            of: The run whose loss it is; empty where that is clear.
        """
        whose = f" of {of}" if of else ""
        now = _WORDS[self.is_nan]
        since = f"since step {self.step}"
        if not self.is_whole:
            since += ", the first on record, or longer"
        if self.was_nan == self.is_nan:
            return f"the loss{whose} has been {now} {since}"
        there = "" if self.was_nan is None else f"{_WORDS[self.was_nan]} there, "
        return f"the loss{whose} has not been finite {since}: {there}{now} now"


def since_of(rows: Iterable[Mapping[str, Any]]) -> NotFinite | None:
    """What the rows of `SINCE` say; None where the newest loss is finite, or none is known."""
    found = list(rows)
    bad = [row for row in found if row["loss"] is not None and not math.isfinite(row["loss"])]
    if not bad:
        return None
    first = bad[0]
    told, is_nan = first.get("not_finite_since"), math.isnan(bad[-1]["loss"])
    step = int(first["step"] if told is None else told)
    return NotFinite(
        step=step,
        was_nan=math.isnan(first["loss"]) if step == first["step"] else None,
        is_nan=is_nan,
        is_whole=told is not None or first is not found[0],
    )


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
    now = math.nan
    for number in range(newest, max(0, newest - ring.header.capacity), -1):
        row = ring.row(number, ("step", "loss", "not_finite_since"))
        told = None if row is None else row.values.get("not_finite_since")
        loss, step = (None, None) if row is None else (row.values["loss"], row.values["step"])
        if loss is None or step is None:
            if first is None and newest - number > _UNKNOWN:
                return None
            continue
        if first is None:
            now = loss
        if told is not None and not math.isfinite(loss):
            there = _loss_at(ring, number - (step - told), told)
            return _found((int(told), there), now, is_whole=True)
        if math.isfinite(loss):
            return None if first is None else _found(first, now, is_whole=True)
        first = int(step), loss
    return None if first is None else _found(first, now, is_whole=False)


def _loss_at(ring: RingPeek, number: int, step: int) -> float | None:
    """The loss of a step, if it is in the row of that number."""
    row = ring.row(number, ("step", "loss"))
    if row is None or row.values["step"] != step:
        return None
    loss: float | None = row.values["loss"]
    return loss


def _found(first: tuple[int, float | None], now: float, *, is_whole: bool) -> NotFinite:
    step, loss = first
    return NotFinite(
        step=step,
        was_nan=None if loss is None else math.isnan(loss),
        is_nan=math.isnan(now),
        is_whole=is_whole,
    )
