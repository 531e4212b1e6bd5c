"""Losses that are not finite in a step that does not end: a gradient scaler leaves out its end.

Rules of this file: pure functions of `Facts`. A step's own loss is on record once it has ended;
until then those of its micro-batches are, and nobody else looks at them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ......errors import ProbingError
from ......messages.frozen import dataclass
from ......postmortem.not_finite import IN_A_ROW, NotFinite, peek_since
from .....restarting import newest_before
from ....facts import Facts, Row
from ....findings import Sign
from ....not_looked_at import Unread

_OF_STEP = (
    "SELECT count(*) FILTER (backward_s IS NOT NULL) AS passes,"
    " count(*) FILTER (is_lost) AS lost, arg_min(loss, seq) FILTER (is_lost) AS first_loss,"
    " arg_max(loss, seq) FILTER (is_lost) AS last_loss, max(micro_batch) FILTER (backward_s IS NOT"
    " NULL) - min(micro_batch) FILTER (is_lost) + 1 AS since"
    " FROM (SELECT micro_batch, backward_s, loss, seq,"
    " NOT isfinite(loss) AND seq > coalesce(max(seq) FILTER (isfinite(loss)) OVER (), -1)"
    " AS is_lost FROM python.micro_batches WHERE step = {step})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Losses of the step in progress, none of which is finite any more.

    Attributes:
        since: Since which step.
        losses: How many there are in a row; those count that nobody knows, as under a scale of 0.
        is_scaled: Whether a gradient scaler is known to be in use.
    """

    since: NotFinite
    losses: int
    is_scaled: bool

    @property
    def words(self) -> str:
        """A clause that goes on a sentence about the loss."""
        who = "the gradient scaler has left out each step since then" if self.is_scaled else (
            "no optimizer has stepped since then"
        )  # fmt: skip
        return f", in {self.losses:,} micro-batches in a row, and {who}"


def passes_in_progress(facts: Facts) -> Row | None:
    """What is on record of the micro-batches of the step in progress; None where there is none."""
    open_step = facts.steps.open
    if open_step is None:
        return None
    return next(iter(facts.rows(_OF_STEP.format(step=open_step["step"]))), None)


def lost_in_progress(facts: Facts) -> Lost | None:
    """Since which step the losses are not finite of which no step has ended; None where some is."""
    steps, row = facts.steps, passes_in_progress(facts)
    if row is None or steps.open is None:
        return None
    each = float(np.median(steps.column("micro_batches", missing=1.0))) if len(steps) else 1.0
    if row["lost"] < IN_A_ROW * max(1.0, each):
        return None
    since = NotFinite(
        step=steps.open["step"],
        was_nan=math.isnan(row["first_loss"]),
        is_nan=math.isnan(row["last_loss"]),
        is_whole=True,
    )
    scales = [one["amp_scale"] for one in steps.rows[-1:]] or [steps.open["amp_scale"]]
    return Lost(
        since=since, losses=max(row["lost"], row["since"] or 0), is_scaled=scales[-1] is not None
    )


def restart_before(facts: Facts, step: int) -> list[str]:
    """From which checkpoint to start again, if one of before a step is on record."""
    if facts.is_closed:
        return []
    try:
        found = newest_before(facts.process, step)
    except ProbingError:
        return []
    return found.sentences() if found else []


def or_by_file(look: Callable[[Facts], Iterable[Sign]]) -> Callable[[Facts], Iterable[Sign]]:
    """A look for such losses that is content with the file of the record where time is up."""

    def looked(facts: Facts) -> Iterator[Sign]:
        try:
            yield from look(facts)
        except Unread:
            found = peek_since(facts.folder) if facts.folder is not None else None
            if found is None:
                raise
            facts.has_refused = False
            told = found.sentence()
            summary, step = told[:1].upper() + told[1:], found.step
            yield Sign(certainty="certain", summary=summary, since_step=step, weight=1.0)

    return looked
