"""Where the first values that are not finite come from: a module, the data, or the weights.

Rules of this file: what a watch has found is on record; where there was none, one step of a living
training is watched.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ......units import figure
from .....arming import watch_numbers
from ....facts import Facts
from ....not_looked_at import NotLookedAt

Row = dict[str, Any]

_FOUND = (
    "SELECT step, module, class, stage, role, what, tensor, given_max FROM python.numerics"
    " WHERE step >= {since} - 1 ORDER BY seq LIMIT 1"
)
"""Gradients that are not finite in the step before make the loss of the first one so."""
_GUARDED = (
    "SELECT step, parameter, bad_parameters AS bad FROM python.nan_steps"
    " WHERE step BETWEEN {since} - 1 AND {since} AND parameter IS NOT NULL ORDER BY seq LIMIT 1"
)
_SAMPLED = (
    "SELECT step, last(parameter ORDER BY seq) FILTER (NOT isfinite(norm)) AS parameter,"
    " count(*) FILTER (NOT isfinite(norm)) AS bad FROM python.gradients"
    " WHERE step BETWEEN {since} - 1 AND {since} GROUP BY step"
    " HAVING bool_or(NOT isfinite(norm)) ORDER BY step LIMIT 1"
)
"""A backward pass goes from the last parameter to the first: what is not finite is so from where it
began to the first."""
_NORMS = (
    "SELECT step, grad_norm FROM python.steps"
    " WHERE step = {since} - 1 AND grad_norm IS NOT NULL AND isfinite(loss)"
)
"""Of the last step with a finite loss, from a script that clips, or because it was sampled."""
_NOT_ON_RECORD = (
    "which module made the first value that was not finite is not on record: no watch of numbers"
    " was on, and gradients of these steps were not sampled"
)
_LONGEST_STEP_S = 4.0
_STAGES = {"forward": "the forward pass", "backward": "the backward pass"}


class FirstBad(NamedTuple):
    """What is known of it.

    Attributes:
        summary: A clause that goes on a sentence about the loss.
        evidence: What was seen.
        fix: What to do; empty where that is not told by it.
    """

    summary: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""


_BACKWARD = (
    "Look at what the backward pass divides by: a root, a norm or a distance of what is 0 has an"
    " infinite gradient (add an epsilon inside of it), and torch.where keeps a NaN of the branch"
    " that is not taken out of the forward pass alone."
)


def first_bad(facts: Facts, since: int) -> FirstBad:
    """The first value of a watched step that is not finite.

    Args:
        since: The step since when the loss is not.
    """
    row = next(iter(facts.rows(_FOUND.format(since=since))), None) or _watched(facts)
    if row is None:
        return _of_gradients(facts, since)
    module = _module_of(row)
    seen = f"in step {row['step']}, which was watched, "
    held = f"{row['tensor']} of {module} is not finite before anything is computed"
    if row["what"] == "parameter" and row["role"] == "given":
        first = _of_gradients(facts, since)
        words = f"; the weights are lost{first.summary}"
        return FirstBad(words, (seen + held, *first.evidence), first.fix)
    if row["what"] == "buffer":
        words = f"; the buffer {row['tensor']} of {module} keeps it from step to step"
        return FirstBad(words, (seen + held,), _BUFFER)
    if row["role"] == "given":
        words = f"; it comes with what {module} is given: the data"
        return FirstBad(words, (f"{seen}the {row['what']} {row['tensor']} is not finite",), _DATA)
    if row["role"] != "producer":
        return FirstBad()
    stage = _STAGES[row["stage"]]
    what = row["what"] if row["what"] != "parameter" else f"parameter or buffer {row['tensor']}"
    most = row["given_max"]
    largest = f", of inputs up to {figure(most, 3)}" if most is not None else ""
    return FirstBad(
        f"; {module} makes it in {stage}",
        (f"{seen}the {what} of {module} is the first that is not finite{largest}",),
        f"Look at {module}: a logarithm or a root of what is not positive, a division by 0, an"
        " exponential or half precision that overflows.",
    )


def _module_of(row: Row) -> str:
    """The module of a finding, as a sentence names it."""
    return f"{row['module']} ({row['class']})" if row["module"] else "the code of the loss"


def bad_pass(facts: Facts) -> FirstBad:
    """Which module makes gradients that are not finite, as far as a watch of one step shows it."""
    row = _watched(facts)
    if row is None or row["role"] != "producer" or row["stage"] != "backward":
        return FirstBad(fix=_BACKWARD)
    module = _module_of(row)
    seen = f"in step {row['step']}, which was watched, the {row['what']} of {module} was the first"
    return FirstBad(f"; {module} makes them so", (seen,), _BACKWARD)


def _of_gradients(facts: Facts, since: int) -> FirstBad:
    """Whose gradients were the first that were not finite, by what was looked at then."""
    sampled = facts.rows(_SAMPLED.format(since=since))
    rows = sampled or facts.rows(_GUARDED.format(since=since))
    if not rows:
        return _of_norm(facts, since)
    row = rows[0]
    module = row["parameter"].rpartition(".")[0] or row["parameter"]
    return FirstBad(
        f"; the gradients of {module} were not finite in step {row['step']}",
        (
            f"in step {row['step']} {row['bad']} parameters had gradients that were not finite,"
            f" {row['parameter']} {'nearest to the loss' if sampled else 'the first of them'}",
        ),
        _BACKWARD if row["step"] < since else "",
    )


def _of_norm(facts: Facts, since: int) -> FirstBad:
    """Whether the gradients of the last finite loss were finite, if their norm is on record."""
    row = next(iter(facts.rows(_NORMS.format(since=since))), None)
    if row is None:
        return FirstBad(evidence=(_NOT_ON_RECORD,))
    step, norm = row["step"], row["grad_norm"]
    seen = f"in step {step}, whose loss was finite, the norm of the gradients was {figure(norm, 3)}"
    if math.isfinite(norm):
        after = f"so the update of step {step}, or the data or forward pass of step {since} made it"
        return FirstBad(evidence=(f"{seen}: {after}",))
    return FirstBad(f"; the backward pass of step {step} made it", (seen,), _BACKWARD)


def _watched(facts: Facts) -> Row | None:
    """The first finding of a watch of one step; None where that finds none, or cannot be had."""
    try:
        if facts.now(least=1).median_s > _LONGEST_STEP_S:
            return None
        rows = facts.ask(
            "nan watch", lambda: watch_numbers(facts.process, 1, timeout_s=_LONGEST_STEP_S).rows
        )
    except NotLookedAt:
        return None
    return next(iter(rows), None)


_BUFFER = (
    "Restart from the last checkpoint before that, or give the buffer finite values by an eval; and"
    " have what updates it leave out batches that are not finite."
)
_DATA = (
    "Look at the data of that step: leave out, or repair, samples with values that are not finite."
)
