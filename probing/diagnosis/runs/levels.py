"""Whether the second run takes more memory, and whether its loss is higher, at the same steps.

Rules of this file: pure. Only the same steps are compared: memory and loss change as a training
goes on. How far apart losses are is told by how far the loss of the first run has fallen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...messages.frozen import dataclass
from ...units import figure, size
from ..doctor.findings import Certainty
from .effects import Effect, Measure, cause_words, causes_of, explained
from .interval import LEAST_STEPS, compare
from .record import Row, Run, column, together
from .setup import Difference

_MEMORY_TOLD, _MEMORY_LIKELY = 1.15, 1.3
_LEAST_BYTES = 32 << 20
_LOSS_TOLD, _LOSS_LIKELY = 0.1, 0.25
_LEAST_LOSSES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The losses of both runs at the same steps.

    Attributes:
        common: How many steps both have a finite loss of.
        same_until: The first step in which they are not the same to the last bit; None where all
            are the same.
        before: The level of the first run in the last quarter of them.
        gap: By how much the second is higher there at least, of what the first has fallen by, or
            lower where negative; 0 where that may be chance.
    """

    common: int
    first_step: int
    last_step: int
    same_until: int | None
    before: float
    after: float
    gap: float


def memory(before: Run, after: Run) -> Measure | None:
    """What is allocated, or resident, in the same steps; None where that was not measured."""
    first, second, are_same = together(before, after, least=LEAST_STEPS)
    if not are_same:
        return None
    values = [
        column([row for row in rows if row["allocated_bytes"] is not None], "allocated_bytes")
        for rows in (first, second)
    ]
    if min(map(len, values)) < LEAST_STEPS:
        return None
    old, new = (float(np.median(value)) for value in values)
    is_different = max(old, new) >= _MEMORY_TOLD * min(old, new) and abs(new - old) >= _LEAST_BYTES
    return Measure(name="memory", unit="bytes", before=old, after=new, is_different=is_different)


def more_memory(
    before: Run, measured: Measure | None, differences: Sequence[Difference]
) -> Effect | None:
    """That it takes more memory, or less."""
    if measured is None or not measured.is_different:
        return None
    old, new = measured.before, measured.after
    ratio = max(old, new) / min(old, new)
    causes = causes_of(differences, lambda reach: reach.memory)
    is_sure = ratio >= _MEMORY_LIKELY and abs(new - old) >= 2 * _LEAST_BYTES
    is_strong = bool(causes) and causes[0].reach.strength >= 2
    said = (
        f"The process holds {size(new)} in the same steps in which {before.name} held"
        f" {size(old)} ({new / old:.2f} times)"
    )
    return Effect(
        kind="memory",
        is_worse=new > old,
        certainty="likely" if is_sure or is_strong else "possible",
        summary=explained(said, causes),
        evidence=("medians of `allocated_bytes` of python.steps", *cause_words(causes)),
        causes=causes,
        weight=1 - 1 / ratio,
    )


def losses(before: Run, after: Run) -> Losses | None:
    """The losses at the same steps; None where there are too few."""
    pairs = _pairs(before, after)
    if len(pairs) < _LEAST_LOSSES:
        return None
    old, new = (np.array([pair[n]["loss"] for pair in pairs], dtype=np.float64) for n in (0, 1))
    other = np.flatnonzero(old != new)
    quarter = len(pairs) // 4
    found = compare(old[-quarter:], new[-quarter:]) if quarter >= LEAST_STEPS else None
    start = float(np.median(old[: max(1, len(old) // 20)]))
    end = float(np.median(old[-quarter:]))
    fallen = max(start - end, abs(end) / 10, 1e-12)
    gap = 0.0
    if found is not None and found.is_different:
        gap = (found.low if found.low > 0 else found.high) / fallen
    return Losses(
        common=len(pairs),
        first_step=pairs[0][0]["step"],
        last_step=pairs[-1][0]["step"],
        same_until=int(pairs[other[0]][0]["step"]) if len(other) else None,
        before=end,
        after=float(np.median(new[-quarter:])),
        gap=gap,
    )


def higher_loss(
    before: Run, found: Losses | None, differences: Sequence[Difference]
) -> Effect | None:
    """That the loss is higher, or lower."""
    if found is None or abs(found.gap) < _LOSS_TOLD:
        return None
    causes = causes_of(differences, lambda reach: reach.loss)
    is_strong = bool(causes) and causes[0].reach.strength >= 2
    certainty: Certainty = "likely" if is_strong and abs(found.gap) >= _LOSS_LIKELY else "possible"
    than = "higher" if found.gap > 0 else "lower"
    said = (
        f"The loss is {than} than in {before.name} at the same steps: {figure(found.after)} around"
        f" step {found.last_step}, {figure(found.before)} there"
    )
    return Effect(
        kind="loss",
        is_worse=found.gap > 0,
        certainty=certainty,
        summary=explained(said, causes),
        evidence=(
            f"by {100 * abs(found.gap):.0f} % or more of what it had fallen by there, in the last"
            f" quarter of {found.common} steps (99 % interval)",
            first_words(found),
            *cause_words(causes),
        ),
        causes=causes,
        weight=min(1.0, abs(found.gap)),
        since_step=found.same_until,
    )


def first_words(found: Losses) -> str:
    """Up to where losses are the same."""
    if found.same_until is None:
        return f"the losses of all {found.common} common steps are the same to the last bit"
    if found.same_until == found.first_step:
        return f"the losses differ from step {found.first_step} on, the first that both have"
    return f"the losses are the same to the last bit up to step {found.same_until - 1}"


def _pairs(before: Run, after: Run) -> list[tuple[Row, Row]]:
    """The rows of the same steps with finite losses."""
    rows = {row["step"]: row for row in after.steps if _is_finite(row)}
    return [
        (row, rows[row["step"]]) for row in before.steps if row["step"] in rows and _is_finite(row)
    ]


def _is_finite(row: Row) -> bool:
    return row["loss"] is not None and math.isfinite(row["loss"])
