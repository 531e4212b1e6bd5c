"""Since which step the loss of a training has not been finite.

Rules of this file: reads python.steps, by a query or from its file; a step whose loss is not known
counts for nothing. One finite loss ends it: a single step that a gradient scaler leaves out is no
lost training. The agent writes the first step into each row that follows, so that it outlives its
own row. Where a scaler leaves out every step none ends: of the step in progress the losses of its
micro-batches count, once several steps would have had them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any

from ..errors import RingError
from ..messages.frozen import dataclass
from ..ring.format import OPEN
from ..ring.peek import RingPeek
from ..rundir.folders import ProcessFolder
from ..tables import MICRO_BATCHES, STEPS

IN_A_ROW = 3
"""So many steps without one finite loss: a scaler may leave out one or two for a bad batch."""
LOST = (
    "SELECT step, arg_min(loss, seq) AS first_loss, arg_max(loss, seq) AS last_loss"  # noqa: S608 - a number
    " FROM (SELECT step, loss, seq, seq > coalesce(max(seq) FILTER (isfinite(loss)) OVER (), -1)"
    " AS is_last FROM python.micro_batches WHERE step = (SELECT max(step) FROM python.steps)"
    " AND step IN (SELECT step FROM python.steps WHERE duration IS NULL))"
    " WHERE is_last AND NOT isfinite(loss) GROUP BY step"
    f" HAVING count(*) >= {IN_A_ROW} * greatest(1, (SELECT median(micro_batches) FROM python.steps"
    " WHERE duration IS NOT NULL))"
)
"""The step in progress where none of its losses is finite any more; none where some is."""
SINCE = (
    "WITH known AS (SELECT step, loss, not_finite_since FROM python.steps"  # noqa: S608 - our words
    " WHERE loss_finite IS NOT NULL"
    " AND step >= coalesce((SELECT max(step) FROM python.steps WHERE loss_finite), -1)),"
    f" lost AS ({LOST}),"
    " found AS (SELECT step, loss, not_finite_since, 0 AS place FROM known"
    " QUALIFY row_number() OVER (ORDER BY step) <= 2 OR step = max(step) OVER ())"
    " SELECT step, loss, not_finite_since FROM (FROM found"
    " UNION ALL SELECT step, first_loss, step, 1 FROM lost"
    " UNION ALL SELECT step, last_loss, step, 2 FROM lost) ORDER BY step, place"
)
"""The newest step with a finite loss, if there is one, the step after it, and the newest; and the
step in progress, twice, where it is lost."""
_WORDS = {True: "NaN", False: "infinite"}
_UNKNOWN = 64
"""So many of the newest steps may have a loss that is not known yet, or has none."""
_LAST_STEPS = 5
"""By so many it is told how many micro-batches a step has."""
_MOST_BATCHES = 256
"""So many micro-batches, beyond those that prove it, are read for the first of them."""


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
        with RingPeek(folder.ring(STEPS.name)) as steps:
            found = _peeked(steps)
            if found is not None:
                return found
            with RingPeek(folder.ring(MICRO_BATCHES.name)) as batches:
                return _peeked_in_progress(steps, batches)
    except (OSError, RingError):
        return None


def _peeked_in_progress(steps: RingPeek, batches: RingPeek) -> NotFinite | None:
    """The same of the step in progress, by its micro-batches, newest first."""
    newest = steps.newest_seq()
    row = steps.row(newest, ("step",))
    if row is None or row.state != OPEN:
        return None
    step = row.values["step"]
    each = [
        one.values["micro_batches"] or 1
        for number in range(newest - 1, newest - 1 - _LAST_STEPS, -1)
        if (one := steps.row(number, ("micro_batches",))) is not None
    ]
    least = IN_A_ROW * max(1, statistics.median(each or [1]))
    most = int(least) + _MOST_BATCHES
    lost = takewhile(lambda loss: not math.isfinite(loss), _losses_of(batches, step))
    losses = list(islice(lost, most))
    if len(losses) < least:
        return None
    was = math.isnan(losses[-1]) if len(losses) < most else None
    return NotFinite(step=step, was_nan=was, is_nan=math.isnan(losses[0]), is_whole=True)


def _losses_of(batches: RingPeek, step: int) -> Iterator[float]:
    """The losses of a step's micro-batches that are known, newest first.

    Under a scale of 0, to which a scaler comes that leaves out every step, none is any more: then
    the first ones of the step are read.
    """
    number, unknown, has_jumped = batches.newest_seq(), 0, False
    oldest = max(0, number - batches.header.capacity)
    while number > oldest:
        row = batches.row(number, ("step", "micro_batch", "loss"))
        number -= 1
        if row is not None and row.values["step"] != step:
            return
        if row is not None and row.values["loss"] is not None:
            unknown = 0
            yield row.values["loss"]
        elif (unknown := unknown + 1) > _UNKNOWN and row is not None and not has_jumped:
            first = number + 1 - row.values["micro_batch"]
            number, has_jumped = min(number, first + _MOST_BATCHES), True


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
