"""Why all gradients are zero: a loss that is nothing.

Rules of this file: a pure function of `Facts`, for the rule that has seen the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...facts import Facts
from ...findings import Sign
from .losses import ignored_labels

_NEWEST = 8
_MASKED = (
    "Find what sets the labels to ignore_index: a template, a separator or a mask that matches no"
    " sample, or cuts all of it off."
)
_NO_LOSS = (
    "Look at what the loss is made of: a mask that leaves nothing, a margin that all samples have,"
    " a weight of 0."
)


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
