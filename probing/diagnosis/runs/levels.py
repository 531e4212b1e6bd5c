"""Whether the second run takes more memory, and whether its loss is higher or lost.

Rules of this file: pure. Only the same steps are compared: memory and loss change as a training
goes on. How far apart losses are is told by how far the loss of the first run has fallen. A loss
that is NaN or infinite has no level, and is never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...messages.frozen import dataclass
from ...units import figure, size
from ..doctor.findings import Certainty
from .effects import Effect, Measure, cause_words, causes_of, explained
from .interval import LEAST_STEPS, Floats, compare
from .record import Run, column, not_finite_in, not_finite_since, together
from .setup import Difference

_MEMORY_TOLD, _MEMORY_LIKELY = 1.15, 1.3
_LEAST_BYTES = 32 << 20
_LOSS_TOLD, _LOSS_LIKELY = 0.1, 0.25
_LEAST_LOSSES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """The losses of both runs at the same steps.

    Attributes:
        compared: How many steps both have a loss of, finite or not.
        common: How many steps both have a finite loss of.
        last_step: The last of these.
        same_until: The first step in which they are not the same to the last bit, where NaN is the
            same as NaN; None where all are.
        before: The level of the first run in the last quarter of those with a finite loss; None
            where these are too few.
        gap: By how much the second is higher there at least, of what the first has fallen by, or
            lower where negative; 0 where that may be chance.
    """

    compared: int
    common: int
    first_step: int
    last_step: int
    same_until: int | None
    before: float | None
    after: float | None
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
    rows = {row["step"]: row for row in after.losses}
    pairs = [(row, rows[row["step"]]) for row in before.losses if row["step"] in rows]
    if len(pairs) < _LEAST_LOSSES:
        return None
    old, new = (np.array([pair[n]["loss"] for pair in pairs], dtype=np.float64) for n in (0, 1))
    other = np.flatnonzero((old != new) & ~(np.isnan(old) & np.isnan(new)))
    finite = np.flatnonzero(np.isfinite(old) & np.isfinite(new))
    levels = _levels(old[finite], new[finite]) if len(finite) >= _LEAST_LOSSES else None
    level, other_level, gap = levels or (None, None, 0.0)
    return Losses(
        compared=len(pairs),
        common=len(finite),
        first_step=pairs[0][0]["step"],
        last_step=pairs[finite[-1] if len(finite) else -1][0]["step"],
        same_until=int(pairs[other[0]][0]["step"]) if len(other) else None,
        before=level,
        after=other_level,
        gap=gap,
    )


def _levels(old: Floats, new: Floats) -> tuple[float, float, float]:
    """The levels of both in the last quarter of some steps, and the gap between them."""
    quarter = len(old) // 4
    found = compare(old[-quarter:], new[-quarter:]) if quarter >= LEAST_STEPS else None
    start = float(np.median(old[: max(1, len(old) // 20)]))
    end = float(np.median(old[-quarter:]))
    fallen = max(start - end, abs(end) / 10, 1e-12)
    gap = 0.0
    if found is not None and found.is_different:
        gap = (found.low if found.low > 0 else found.high) / fallen
    return end, float(np.median(new[-quarter:])), gap


def lost_loss(before: Run, after: Run, differences: Sequence[Difference]) -> Effect | None:
    """That the loss of one is NaN or infinite from some step on, and that of the other is not."""
    runs = {False: before, True: after}
    since = {is_after: not_finite_since(run.losses) for is_after, run in runs.items()}
    steps = {is_after: found.step for is_after, found in since.items() if found is not None}
    if not steps or steps.get(False) == steps.get(True):
        return None
    is_worse = min(steps, key=lambda is_after: steps[is_after])
    first, second, other = since[is_worse], since[not is_worse], runs[not is_worse]
    assert first is not None
    said = first.sentence(runs[is_worse].name)
    if second is not None:
        said += f"; {second.sentence(other.name)}"
    elif other.losses:
        said += f"; the last of {other.name}, in step {other.losses[-1]['step']}, is finite"
    causes = causes_of(differences, lambda reach: reach.loss)
    return Effect(
        kind="not_finite",
        is_worse=is_worse,
        certainty="certain",
        summary=explained(said[0].upper() + said[1:], causes),
        evidence=("`loss` of python.steps", *cause_words(causes)),
        causes=causes,
        weight=1.0,
        since_step=first.step,
    )


def higher_loss(
    before: Run, found: Losses | None, differences: Sequence[Difference]
) -> Effect | None:
    """That the loss is higher, or lower."""
    if found is None or found.before is None or found.after is None:
        return None
    if abs(found.gap) < _LOSS_TOLD:
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
        also = ", NaN or infinite as they are" if found.common < found.compared else ""
        return f"the losses of all {found.compared} common steps are the same to the last bit{also}"
    if found.same_until == found.first_step:
        return f"the losses differ from step {found.first_step} on, the first that both have"
    return f"the losses are the same to the last bit up to step {found.same_until - 1}"


def lost_words(run: Run) -> str | None:
    """Where the loss of a run is NaN or infinite; None where it never is."""
    since, bad = not_finite_since(run.losses), not_finite_in(run.losses)
    if since is not None:
        return since.sentence(run.name)
    if not bad:
        return None
    steps = "1 step" if len(bad) == 1 else f"{len(bad)} steps"
    return f"the loss of {run.name} is NaN or infinite in {steps}, first in step {bad[0]['step']}"
