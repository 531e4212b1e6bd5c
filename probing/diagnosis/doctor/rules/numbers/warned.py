"""Rules about what torch has warned of: it has seen it itself, and nobody has read it.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. A warning is
told only where what it is about is known to be a fault. A loss of the script's own gets no warning:
its graph is looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from .....messages.broadcasts import broadcast_in
from ...facts import Facts
from ...findings import Rule, Sign
from .gradients import SAMPLING_S, notes_of_sampled

_SCHEDULER = "Detected call of `lr_scheduler.step()` before `optimizer.step()`"
_SIZES = re.compile(
    r"Using a target size \(torch\.Size\(\[(?P<target>[\d, ]*)\]\)\) that is different to the input"
    r" size \(torch\.Size\(\[(?P<input>[\d, ]*)\]\)\)"
)


def _scheduler_first(facts: Facts) -> Iterator[Sign]:
    """A scheduler steps before the optimizer."""
    rows = [row for row in facts.live("warnings") if row["message"].startswith(_SCHEDULER)]
    if not rows:
        return
    first = facts.steps.rows[:50]
    if facts.steps.begins_at_start and first and first[0]["skipped"]:
        return  # the scheduler was not first: a gradient scaler left the optimizer's step out
    scaled = any(row["amp_scale"] is not None for row in first)
    yield Sign(
        certainty="possible" if scaled else "likely",
        summary="The learning rate's scheduler steps before the optimizer, at"
        f" {_place(rows[0])}: the first rate of the schedule is left out, and each step has that of"
        " the next",
        since_step=facts.steps.numbers[0] if facts.steps.begins_at_start else None,
        evidence=(
            "torch has warned of it at the first call of scheduler.step()",
            *(("a gradient scaler that leaves out the first steps looks so, too",) if scaled
              else ()),
        ),
        weight=0.3,
    )  # fmt: skip


def _broadcast_loss(facts: Facts) -> Iterator[Sign]:
    """A loss compares each prediction with each target."""
    for row in facts.live("warnings"):
        match = _SIZES.match(row["message"])
        if match is None:
            continue
        target, given = _sizes(match["target"]), _sizes(match["input"])
        whole = _broadcast(target, given)
        if whole is None or math.prod(whole) <= max(math.prod(target), math.prod(given)):
            continue  # one number for all: it is the same whichever way it is laid
        yield Sign(
            certainty="likely",
            summary=f"The loss at {_place(row)} compares each prediction with each target: sizes"
            f" {given} and {target} are broadcast to {whole}",
            since_step=facts.steps.numbers[0] if facts.steps.begins_at_start else None,
            evidence=(f"torch has warned of it: {row['message'].partition('. ')[0]}",),
            weight=0.9,
        )
        return
    shapes = broadcast_in(notes_of_sampled(facts))
    if shapes is not None:
        yield Sign(
            certainty="likely",
            summary="The loss compares each prediction with each target: predictions of size"
            f" {shapes[0]} are broadcast to {shapes[1]}",
            since_step=None,
            evidence=("the graph of the loss has a difference of that size of one of this size",),
            weight=0.9,
        )


def _place(row: dict[str, object]) -> str:
    """Where it is, as `file.py:12`."""
    name = str(row["file"] or row["module"]).rpartition("/")[2]
    return f"{name}:{row['lineno']}"


def _sizes(text: str) -> list[int]:
    return [int(word) for word in text.replace(",", " ").split()]


def _broadcast(first: list[int], second: list[int]) -> list[int] | None:
    """What two sizes come to together; None where they do not fit."""
    rank = max(len(first), len(second))
    pairs = zip(*([1] * (rank - len(one)) + one for one in (first, second)), strict=True)
    whole = []
    for one, other in pairs:
        if one != other and 1 not in {one, other}:
            return None
        whole.append(max(one, other))
    return whole


_WARNINGS_QUERY = 'probing ENDPOINT query "SELECT file, lineno, message FROM python.warnings"'

RULES = (
    Rule(
        name="broadcast-loss",
        group="numbers",
        subject="warnings",
        symptom="The model learns to predict the mean of all targets.",
        evidence=(
            "`message` of python.warnings: a loss was given a target of another size than its"
            " input, and both together are larger than either, as [32] and [32, 1] are. Of a loss"
            " that the script computes itself, the graph of three backward passes: a difference of"
            " size [n, n], one side of which is a prediction of size [n] or [n, 1]."
        ),
        certainty="likely",
        gravity=69,
        fix="Give both the same size: target.unsqueeze(-1), or prediction.squeeze(-1).",
        source="https://pytorch.org/docs/stable/notes/broadcasting.html",
        next=_WARNINGS_QUERY,
        look=_broadcast_loss,
        cost_s=SAMPLING_S,
    ),
    Rule(
        name="scheduler-first",
        group="numbers",
        subject="warnings",
        symptom="The first learning rate of a schedule is never used.",
        evidence="`message` of python.warnings: torch has seen two calls of a scheduler's step"
        " before the first of its optimizer's. Only possible with a gradient scaler, which may"
        " leave out the first steps.",
        certainty="likely",
        gravity=56,
        fix="Call optimizer.step() first, then scheduler.step().",
        source="https://pytorch.org/docs/stable/optim.html",
        next=_WARNINGS_QUERY,
        look=_scheduler_first,
    ),
)
