"""A rule about steps that take far longer at regular intervals.

Rules of this file: asks the record only. Evaluations and checkpoints that are on record have rules
of their own, and waits have theirs; this one tells what comes every few steps and is none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from .....units import duration
from ....phase_words import PHASE_WORDS
from ...facts import WINDOW, Facts, Steps, percent
from ...findings import Rule, Sign
from ..speed import MOST, STEPS_QUERY, most_grown

_LONGER = 3.0
"""So many times the median; batches of varying lengths make steps longer by less, or by chance."""
_LEAST, _REGULAR = 5, 0.7
"""So many long steps, of which this part come at one interval."""
_EACH = 3
"""Every second step may be that of another optimizer, or of another task."""
_WAITS = frozenset({"data_wait", "gradient_sync"})
_SIZES = ("tokens", "samples", "micro_batches")
_EVALUATED = (
    "SELECT count(DISTINCT step) AS steps FROM python.torch_trace WHERE depth = 0 AND NOT training"
    " AND stage = 'forward' AND step IN ({steps})"
)
_OF_EVALUATION = "Evaluate less often, or on a part of the data."


def _every_nth(facts: Facts) -> Iterator[Sign]:
    """Each step of a regular interval takes far longer, and they take most of the time."""
    for count in (10 * WINDOW, 2 * WINDOW):  # others on the machine may make steps long for a while
        found = list(_among(facts, facts.undisturbed.last(count)))
        if found:
            yield from found
            return


def _among(facts: Facts, steps: Steps) -> Iterator[Sign]:
    """The same of some steps."""
    took = steps.column("duration")
    is_long = took > _LONGER * np.median(took) if len(took) else np.zeros(0, dtype=bool)
    long = Steps([row for row, is_one in zip(steps.rows, is_long, strict=True) if is_one])
    rest = Steps([row for row, is_one in zip(steps.rows, is_long, strict=True) if not is_one])
    each = _interval(long.numbers)
    if each is None:
        return
    more = long.total_s - len(long) * rest.median_s
    share = more / steps.total_s
    phase, part = most_grown(rest, long)
    if share < MOST or phase in _WAITS or _is_of_batches(rest, long):
        return
    evaluates = _evaluates(facts, long)
    what = "; modules are called in evaluation mode in them" if evaluates else ""
    yield Sign(
        certainty="possible",
        summary=f"Every {_ordinal(each)} step takes {long.median_s / rest.median_s:.1f} times as"
        f" long as the others ({duration(long.median_s)}, {duration(rest.median_s)}):"
        f" what they take longer is {percent(share)} of the time{what}",
        evidence=(
            f"{len(long)} of the last {len(steps)} steps",
            f"{percent(part)} of the difference is in {phase}_s: {PHASE_WORDS[phase]}",
        ),
        weight=share,
        fix=_OF_EVALUATION if evaluates else "",
    )


def _interval(numbers: list[int]) -> int | None:
    """The number of steps from one long step to the next; None where it is not one number."""
    gaps = Counter(int(gap) for gap in np.diff(numbers))
    if len(numbers) < _LEAST:
        return None
    gap, times = gaps.most_common(1)[0]
    return gap if gap >= _EACH and times >= _REGULAR * (len(numbers) - 1) else None


def _is_of_batches(rest: Steps, long: Steps) -> bool:
    """Whether the long steps have larger batches, or more of them."""
    for name in _SIZES:
        old, new = rest.column(name), long.column(name)
        if np.isnan(old).all() or np.isnan(new).all():
            continue
        if float(np.nanmedian(new)) >= _LONGER * float(np.nanmedian(old)) > 0:
            return True
    return False


def _evaluates(facts: Facts, long: Steps) -> bool:
    """Whether most of the long steps that have calls on record have some in evaluation mode."""
    numbers = long.numbers[-_LEAST:]
    (row,) = facts.rows(_EVALUATED.format(steps=", ".join(map(str, numbers))))
    return bool(row["steps"] > len(numbers) / 2)


def _ordinal(number: int) -> str:
    """A number as people count with it: 3rd, 10th, 21st."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in {11, 12, 13} else ends.get(number % 10, 'th')}"


RULES = (
    Rule(
        name="every-nth-step",
        group="slow",
        subject="speed",
        symptom="Most steps are fast, and the training gets on slowly all the same.",
        evidence=(
            f"`duration` of the last {10 * WINDOW} or {2 * WINDOW} steps of python.steps:"
            f" {_LEAST} or more steps take {_LONGER:.0f} times the median or longer,"
            f" {percent(_REGULAR)} of them at one interval of {_EACH} steps or more, and what"
            " they take longer is half of the time; neither a wait for data or ranks, nor larger"
            " batches. It may be an evaluation that python.evaluations does not have, as of"
            " functions that compute with the model's parameters."
        ),
        certainty="possible",
        gravity=37,
        fix="Do what is done in these steps less often, unless it is meant so.",
        next=STEPS_QUERY,
        look=_every_nth,
    ),
)
