"""A rule about gradients that grow by orders of magnitude, at once or over many steps.

Rules of this file: pure functions of `Facts`; the rule is named at the end. A norm that has grown
for long has no usual value to be set beside: its own trend tells, by its logarithm. Gradients grow
in healthy trainings, too: as a loss begins to fall, with the rewards of a policy, or where
something is zero at first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ......units import figure
from .....leaks.series import Point, classify
from ....facts import Facts, Steps
from ....findings import Rule, Sign
from ....series import Floats
from ..losses import LOSS_QUERY, acts
from ..rates import middle_of, newest_training
from ..steadier import STEADIER, steadier

_FEW, _NOW = 40, 10
_TIMES = 100.0
_LEAST = 1.0
"""A norm below that is none to fear, however small it was: so it is as a plateau is left."""
_WORSE = 1.2
_HELD = 0.5
"""What clipping leaves less of is held by it."""
_LEARNS = "the loss does not get worse meanwhile: gradients grow, too, as something is learned"
_CLIPPED = "the script clips them, so that the weights are changed by no more than that"
_POLICY = "those of a policy grow, too, with the rewards that it comes to expect"


def _exploding(facts: Facts) -> Iterator[Sign]:
    """The gradients are far larger than they were."""
    steps = newest_training(facts).settled()
    norms = steps.column("grad_norm")
    known = np.flatnonzero(np.isfinite(norms))
    if len(known) < _FEW:
        return
    usual, now = (float(np.median(norms[part])) for part in (known[:-_NOW], known[-_NOW:]))
    if usual <= 0:
        return
    if now < _TIMES * usual:
        yield from _growing(facts, steps, norms, now)
        return
    yield Sign(
        certainty="likely",
        summary=f"The gradients explode: their norm is {figure(now, 3)} now, and was"
        f" {figure(usual, 3)}",
        since_step=steps.numbers[int(known[-_NOW])],
        weight=0.8,
        evidence=(f"the median of {_NOW} steps beside that of {len(known) - _NOW} before",),
        fix=steadier(steps),
    )


def _growing(facts: Facts, steps: Steps, norms: Floats, now: float) -> Iterator[Sign]:
    """The norm has grown for many steps, and grows still."""
    known = np.flatnonzero(np.isfinite(norms) & (norms > 0))
    points = [Point(steps.numbers[at], float(np.log10(norms[at]))) for at in known]
    trend = classify(points, least_rise=np.log10(_TIMES) / 2)
    if not trend.grows or trend.first_step is None or now < _LEAST:
        return
    grown = np.array([at for at in known if steps.numbers[at] >= trend.first_step])
    at_first = float(np.median(norms[grown[:_NOW]]))
    if len(grown) < _FEW or now < _TIMES * at_first:
        return
    meant = _meant(facts, Steps([steps.rows[at] for at in grown]))
    middle = grown[len(grown) // 2]
    yield Sign(
        certainty="possible" if meant else "likely",
        summary=f"The gradients grow and grow: their norm is {figure(now, 3)} now, and was"
        f" {figure(at_first, 3)} near step {trend.first_step}",
        since_step=trend.first_step,
        weight=0.6,
        evidence=(
            f"{figure(float(norms[middle]), 3)} in step {steps.numbers[middle]}:"
            f" {figure(now / at_first, 2)} times as much in {len(grown)} steps",
            *meant,
        ),
        fix=steadier(steps),
    )


def _meant(facts: Facts, since: Steps) -> tuple[str, ...]:
    """Why gradients may be meant to grow in some steps; nothing where the loss gets worse."""
    losses = since.column("loss")
    first, last = middle_of(losses[:_NOW]), middle_of(losses[-_NOW:])
    worse = last - first > (_WORSE - 1) * abs(first)  # False where no loss is known
    held = since.column("clipped_norm") < _HELD * since.column("grad_norm")
    return (
        *((_LEARNS,) if not worse else ()),
        *((_CLIPPED,) if held[-_NOW:].mean() > _HELD else ()),
        *((_POLICY,) if acts(facts, since) else ()),
    )


RULES = (
    Rule(
        name="exploding-gradients",
        group="numbers",
        subject="gradients",
        symptom="The norm of the gradients is far larger than it was; NaN may come next.",
        evidence=(
            f"`grad_norm` of python.steps: the last ten are {_TIMES:.0f} times what it was; or"
            f" its logarithm grows over all of a span of {_FEW} steps or more that ends now (Mann"
            f" and Kendall), by as much, to {_LEAST:.0f} or more: only possible where the loss is"
            " not a fifth worse, the script clips the gradients to half or less, or a policy is"
            " trained."
        ),
        certainty="likely",
        gravity=73,
        fix=STEADIER,
        next=LOSS_QUERY,
        look=_exploding,
    ),
)
