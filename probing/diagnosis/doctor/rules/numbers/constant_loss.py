"""A loss that is one and the same number in each step: nothing, or another one.

Rules of this file: pure functions of `Facts`. A loss of exactly nothing is for the rule that has
seen the gradients: theirs are zero, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from .....units import figure
from ...facts import Facts
from ...findings import Rule, Sign
from .losses import LOSS_QUERY, ignored_labels
from .rates import newest_training

_LEAST = 60
_SAME = 2e-6
"""Of the loss: what rounding in float32 makes of one and the same number."""
_NOTHING = 1e-6
"""A surrogate, as of a policy whose advantages are normalised, is this near to nothing."""
_SAMPLED = 3
"""Steps in which gradients were looked at."""
_MOST_ANSWERS = 10_000
_NEWEST = 8
_MASKED = (
    "Find what sets the labels to ignore_index: a template, a separator or a mask that matches no"
    " sample, or cuts all of it off."
)
_NO_LOSS = (
    "Look at what the loss is made of: a mask that leaves nothing, a margin that all samples have,"
    " a weight of 0."
)


def _constant(facts: Facts) -> Iterator[Sign]:
    """The loss does not move at all, and gradients that are not zero do nothing to it."""
    training = newest_training(facts)
    losses = training.column("loss")
    newest = losses[-_LEAST:]
    if len(newest) < _LEAST or not np.isfinite(newest).all():
        return
    loss = float(np.median(newest))
    if abs(loss) < _NOTHING or not _is(newest, loss).all():
        return
    other = np.flatnonzero(~_is(losses, loss))
    first = int(other[-1]) + 1 if len(other) else 0
    since = training.last(len(losses) - first)
    norms = since.column("grad_norm")
    moving = np.isfinite(norms) & (norms > 0)
    rates = since.column("lr")
    if moving.sum() < _SAMPLED or not (rates[np.isfinite(rates)] > 0).all():
        return
    answers = round(math.exp(min(loss, math.log(_MOST_ANSWERS))))
    is_log = answers > 1 and math.isclose(loss, math.log(answers), rel_tol=_SAME)
    yield Sign(
        certainty="likely" if is_log and answers == 2 else "possible",
        summary=f"The loss is {figure(loss)}{_as_log(answers) if is_log else ''} in each of"
        f" {len(since):,} steps, whatever the batch, though gradients are not zero",
        since_step=since.numbers[0],
        evidence=(
            f"gradient norm {figure(float(np.median(norms[moving])))} in the steps that were"
            " looked at",
        ),
        weight=0.9 if is_log else 0.5,
    )


def _is(losses: np.ndarray, loss: float) -> np.ndarray:
    """Which losses are this one but for rounding."""
    return np.asarray(np.abs(losses - loss) <= _SAME * abs(loss))


def _as_log(answers: int) -> str:
    """What a loss says that is the logarithm of a whole number."""
    if answers == 2:
        return ", exactly ln 2: what it compares is the same on both sides,"
    return f", exactly ln {answers:,}: all {answers:,} answers are equally likely to the model,"


def all_zero(facts: Facts, modules: int, steps: Sequence[int]) -> Sign:
    """All gradients are zero: where the loss is, too, or no label counts, that is why.

    Args:
        modules: How many there are.
        steps: Those in which the gradients were looked at.
    """
    newest = facts.now(least=len(steps)).last(_NEWEST)
    losses = newest.column("loss")
    nothing = f"gradients of all {modules} modules are exactly zero"
    ignored = ignored_labels(facts)
    if not (losses == 0).all():
        summary, since = f"All {nothing}" + (f": {ignored[0]}" if ignored else ""), None
    else:
        summary = "The loss is exactly 0 in each step, and nothing is learned: " + (
            ignored[0] if ignored else f"the {nothing}"
        )
        every = facts.steps.column("loss")
        other = np.flatnonzero(every != 0)
        since = facts.steps.numbers[int(other[-1]) + 1 if len(other) else 0]
    return Sign(
        certainty="likely",
        summary=summary,
        since_step=since,
        weight=1.0,
        evidence=(
            f"in each of the steps {steps[0]} to {steps[-1]}",
            *((f"the {nothing}",) if since is not None and ignored else ()),
        ),
        next="probing ENDPOINT labels" if ignored else "",
        fix=_MASKED if ignored else "" if since is None else _NO_LOSS,
    )


RULES = (
    Rule(
        name="loss-constant",
        group="numbers",
        subject="loss",
        symptom="The loss is the same number in every step.",
        evidence=f"`loss` of python.steps is one number, but for rounding, in the newest {_LEAST}"
        f" steps or more, and not nothing; `grad_norm` is above 0 in {_SAMPLED} of them or more,"
        " and no `lr` is 0. Likely where it is ln 2.",
        certainty="likely",
        gravity=76,
        fix="Look at what the loss is made of: a reference that is the trained model itself, where"
        " a copy (copy.deepcopy) was meant, both inputs of a comparison taken from one place, or"
        " outputs that cancel, as a softmax over an axis of one.",
        source="https://arxiv.org/abs/2305.18290",
        next=LOSS_QUERY,
        look=_constant,
    ),
)
