"""A rate that is too high for an optimizer whose steps are as large as its rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .....units import figure
from ...facts import WINDOW, Facts
from ...findings import Rule, Sign
from .losses import LOSS_QUERY, losses_of, smooth
from .rates import FEW_STEPS

_BY_RATE = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Lion")
"""They divide a gradient by its own size, so that a weight moves by about the rate in a step."""
_HIGH = 0.05
"""As large as a weight of a layer with 400 inputs is at first (1/sqrt(inputs) at most); what is
customary is 1e-2 and less."""
_NOT_LEARNED, _LOST = 0.9, 1.5
_PART = 0.15
"""Of what the loss was at first: near its floor a loss is all noise."""
_MIDDLE = 20


def _too_high(facts: Facts) -> Iterator[Sign]:
    """The rate is far above what is customary, and what had been learned is gone, or nothing is."""
    steps = facts.steps
    if len(steps) < 2 * FEW_STEPS or steps.rows[-1]["optimizer"] not in _BY_RATE:
        return
    rates, losses = steps.column("lr"), losses_of(steps)
    high = np.flatnonzero(rates >= _HIGH)
    if not len(high) or len(losses) < 2 * FEW_STEPS:
        return
    best = smooth(losses, _MIDDLE)[_MIDDLE - 1 :]
    first, least, now = float(best[0]), float(best.min()), float(np.median(losses[-WINDOW:]))
    if 0 < _LOST * least < now and now - least > _PART * first:
        words = f"the loss is {figure(now)}, and was {figure(least)} before"
    elif steps.begins_at_start and 0 < _NOT_LEARNED * first < now:
        words = f"the loss has not fallen: {figure(first)} in the first steps, {figure(now)} now"
    else:
        return
    most, last = float(np.nanmax(rates)), float(rates[high[-1]])
    yield Sign(
        certainty="likely",
        summary=f"The learning rate is too high: {steps.rows[-1]['optimizer']} moves each weight by"
        f" up to its rate in each step, and that was {figure(most, 3)}; {words}",
        since_step=steps.numbers[high[0]],
        evidence=(
            f"{len(high)} of {len(steps)} steps had a rate of {_HIGH} or more, the last"
            f" {figure(last, 3)}; what is customary is 1e-2 and less",
        ),
        weight=0.9,
    )


RULES = (
    Rule(
        name="rate-too-high",
        group="numbers",
        subject="learning rate",
        symptom="The loss falls at first or not at all, and is then as high as at the start.",
        evidence=f"`lr` of python.steps {_HIGH} or more under an optimizer that divides gradients"
        f" by their size ({', '.join(_BY_RATE)}), and `loss` within a tenth of that of the first"
        f" steps, or {_LOST} times its least.",
        certainty="likely",
        gravity=81,
        fix="Lower it to 1e-3 or less, and look at what multiplies it: a warm-up or schedule with a"
        " wrong exponent or factor, a scaling by batch size or ranks, a rate meant for SGD.",
        source="https://arxiv.org/abs/1412.6980",
        next=LOSS_QUERY,
        look=_too_high,
    ),
)
