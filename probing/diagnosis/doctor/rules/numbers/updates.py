"""Rules about what becomes of gradients: thrown away, without effect, or numbers too small to use.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. They look at
the gradients of the same few steps as those of `gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from .....units import figure
from ...facts import WINDOW, Facts, Steps, percent
from ...findings import Rule, Sign
from ...series import last_change
from ..trained.rounded import FULL_WEIGHTS, rounded_away, tells
from .gradients import SAMPLING_S, Row, sampled
from .not_finite.first_bad import bad_pass

_LEAST_THROWN = 1.5
"""Backward passes per step, in the mean: fewer are a script that leaves out a bad one."""
_DIVIDED = (
    "SELECT median(s.first_loss / m.loss) AS times, avg((m.data_wait_s IS NOT NULL)::INT) AS waits"
    " FROM python.micro_batches m JOIN python.steps s USING (step)"
    " WHERE m.step BETWEEN {first} AND {last} AND m.loss <> 0"
)
_EACH, _HALF = 0.9, 0.5
_NORMED = 20
_SUBNORMAL = 0.05
"""Fewer come about here and there, and cost nothing."""
_STATE, _MOST_OF_STATE = "state_subnormal_share", 0.4
"""Adam keeps two numbers per weight, of which one decays in a thousand steps without a gradient."""
_SLOWER = 1.3
_FELT = 0.05
"""What part of a step it must be by which phases have become longer: the optimizer of a small model
may take half as long again, and nobody waits for it."""
_KINDS = {
    "state_subnormal_share": ("what the optimizer keeps", ("optimizer_s",)),
    "weight_subnormal_share": ("the weights", ("forward_s", "backward_s")),
    "subnormal_share": ("the gradients", ("backward_s", "optimizer_s")),
}


def _thrown(facts: Facts) -> Iterator[Sign]:
    """Gradients of backward passes are thrown away before an optimizer uses them."""
    now = facts.now()
    passes = now.column("micro_batches", missing=1.0)
    if float(passes.mean()) < _LEAST_THROWN:
        return
    lost = _lost_steps(sampled(facts))
    if not lost:
        return
    row = lost[0]
    rows = facts.rows(_DIVIDED.format(first=now.numbers[0], last=now.numbers[-1]))
    is_irregular = passes.min() != passes.max()
    is_divided = (rows[0]["times"] or 0) > _LEAST_THROWN
    has_batches = (rows[0]["waits"] or 0) > _EACH
    # Some passes between two steps now and then may be for something else, such as statistics.
    is_seldom = is_irregular and 2 * int((passes > 1).sum()) <= len(now)
    is_sure = is_irregular or is_divided or has_batches
    settled = facts.steps.settled()
    change = last_change(settled.column("micro_batches", missing=1.0))
    since = None if change is None or change.ratio < 1 else settled.numbers[change.place]
    yield Sign(
        certainty="likely" if is_sure and not is_seldom else "possible",
        summary=_thrown_words(passes.mean(), passes.min(), passes.max()),
        since_step=since,
        evidence=(
            f"in step {row['step']} {row['passes']} backward passes gave {row['parameter']} a"
            f" gradient, and the optimizer used {row['kept_passes']} of them; so it is with all",
            *(("each loss was divided by the number of passes: they were to add up",)
              if is_divided else ()),
        ),
        weight=1 - 1 / float(passes.mean()),
        fix=_CONDITION if is_irregular else "",
    )  # fmt: skip


def _thrown_words(mean: float, least: float, most: float) -> str:
    if least == most:
        return (
            f"Gradients of micro-batches are thrown away: of the {mean:.0f} backward passes of a"
            " step not all are in the gradients that the optimizer uses"
        )
    return (
        f"The optimizer steps after one of {mean:.1f} backward passes only ({least:.0f} to"
        f" {most:.0f} in a step), and the gradients of the others are thrown away: the script"
        " leaves out its steps"
    )


def _lost_steps(rows: Sequence[Row]) -> list[Row]:
    """A row of each step in which all gradients have lost passes; none if one has kept them."""
    by_step: dict[int, list[Row]] = {}
    for row in rows:
        by_step.setdefault(row["step"], []).append(row)
    found = []
    for number, own in enumerate(by_step.values()):
        if any(row["kept_passes"] is None for row in own):
            if number == 0:
                continue  # its passes had begun as it was asked for
            return []
        if all(row["passes"] < 2 for row in own):
            continue  # there was nothing to lose
        if not all(row["kept_passes"] < row["passes"] for row in own):
            return []  # of one model of several, or of one that shares a pass with another loss
        found.append(own[0])
    return found


_ROUNDED = 1e-6
"""Of a weight: bfloat16 tells apart what differs by 1/256 of it, float16 by 1/2048."""
_ENDS_ITSELF = ("LBFGS",)
_DONE = (
    "If the loss is as low as it can be, end the training; else look at what makes the gradients"
    " so small, or lower the optimizer's tolerances."
)
_CONDITION = (
    "Look at the condition under which optimizer.step() is called: a norm that is taken before"
    " clipping, a threshold that is too low, a check that is true for other reasons."
)


def _no_update(facts: Facts) -> Iterator[Sign]:
    """The optimizer steps and changes nothing."""
    now = facts.now()
    rows = [row for row in sampled(facts) if row["weight_norm"]]
    known = [row for row in rows if row["update_ratio"] is not None]
    rate = now.rows[-1]["lr"]
    steps = {row["step"] for row in known}
    if not rate or len(steps) < 2 or 2 * len(known) < len(rows):
        return
    types = {row["dtype"] for row in facts.live("parameters") if row["optimizers"]}
    is_half = bool(types) and types <= {"bfloat16", "float16"}
    moved = [row for row in known if row["norm"]]
    still = [row for row in moved if row["update_ratio"] < _ROUNDED]
    is_most = len(still) < len(moved) and 2 * len(still) >= len(moved)
    if is_most and is_half and tells(facts, still, min(types)):
        yield _rounded(still, moved, sorted(types))
    elif any(row["update_ratio"] for row in moved):
        yield from rounded_away(facts, moved)
    if any(row["update_ratio"] for row in known) or not moved:
        return
    reach = max(rate * row["norm"] / row["weight_norm"] for row in moved)
    is_own_end = now.rows[-1]["optimizer"] in _ENDS_ITSELF
    may_be_done = not is_half and (is_own_end or reach < _ROUNDED)
    words = (
        f"; each change is less than {', '.join(sorted(types))} can tell"
        if is_half
        else f"; it has converged, or the gradients are too small: {_why_done(reach, is_own_end)}"
        if may_be_done
        else ""
    )
    yield Sign(
        certainty="possible" if may_be_done else "certain",
        summary="The optimizer steps and changes nothing: no parameter was changed in steps"
        f" {min(steps)} to {max(steps)}, though the rate is {figure(rate, 3)} and there are"
        " gradients" + words,
        evidence=(f"{len(known)} changes of parameters were compared, bit by bit",),
        weight=0.2 if may_be_done else 1.0,
        fix=FULL_WEIGHTS if is_half else _DONE if may_be_done else "",
    )


def _why_done(reach: float, is_own_end: bool) -> str:  # noqa: FBT001 - of one caller
    """Why an optimizer may have nothing to change."""
    if is_own_end:
        return "LBFGS changes nothing where no gradient is above its tolerance_grad"
    return f"rate times gradient is {figure(reach, 1)} of the weights at most"


def _rounded(still: Sequence[Row], moved: Sequence[Row], types: Sequence[str]) -> Sign:
    """Most parameters are hardly changed, since their type cannot tell so little a change."""
    return Sign(
        certainty="likely",
        summary=f"The optimizer changes hardly anything: {len(still)} of {len(moved)} changes of"
        f" parameters that have gradients were less than a millionth of the weights; {types[0]}"
        " rounds so little a change away",
        evidence=(
            f"`update_ratio` of {still[0]['parameter']} is {figure(still[0]['update_ratio'], 2)}",
        ),
        weight=len(still) / len(moved),
        fix=FULL_WEIGHTS,
    )


def _denormals(facts: Facts) -> Iterator[Sign]:
    """The processor computes with numbers below the smallest normal one."""
    rows = sampled(facts)
    shares = {name: _share(rows, name) for name in _KINDS}
    steps = facts.steps.settled()
    paces = {  # others make phases longer, too
        kind: 1.0 if facts.crowd else _slower(steps, phases) for kind, (_, phases) in _KINDS.items()
    }
    if shares[_STATE] < _MOST_OF_STATE and paces[_STATE] <= _SLOWER:
        shares[_STATE] = 0.0
    name = max(shares, key=lambda kind: shares[kind])
    share, slower, (what, phases) = shares[name], paces[name], _KINDS[name]
    if share < _SUBNORMAL:
        return
    worst = max(rows, key=lambda row: (row[name] or 0.0) * row["numel"])
    change = last_change(steps.column("duration"), least_ratio=_SLOWER)
    is_slower = slower > _SLOWER
    yield Sign(
        certainty="likely" if is_slower else "possible",
        summary=f"{percent(share)} of {what} are denormal numbers, below the smallest normal one,"
        f" most for {worst['parameter']}: a processor computes with them up to a hundred times as"
        " slowly",
        since_step=steps.numbers[change.place] if is_slower and change is not None else None,
        evidence=(
            *(f"{percent(part)} of {_KINDS[kind][0]}" for kind, part in shares.items() if part),
            *((f"{' and '.join(phases)} have become {slower:.1f} times what they were at first",)
              if is_slower else ()),
        ),
        weight=1 - 1 / max(slower, 1.01) if is_slower else 0.1,
    )  # fmt: skip


def _share(rows: Sequence[Row], name: str) -> float:
    """What part of all numbers is subnormal."""
    known = [row for row in rows if row[name] is not None]
    total = sum(row["numel"] for row in known)
    return sum(row[name] * row["numel"] for row in known) / total if total else 0.0


def _slower(steps: Steps, phases: Sequence[str]) -> float:
    """How much longer phases take than they did at first, where a step feels that."""
    took = sum(steps.column(phase, missing=0.0) for phase in phases)
    count = min(WINDOW, len(steps) // 4)
    if not isinstance(took, np.ndarray) or count < 2:
        return 1.0
    first, last = float(np.median(took[:count])), float(np.median(took[-count:]))
    is_felt = last - first >= _FELT * float(np.median(steps.column("duration")[-count:]))
    return last / first if first > 0 and is_felt else 1.0


def _not_finite(facts: Facts) -> Iterator[Sign]:
    """Gradients are not finite, though the loss is."""
    known = [
        row
        for row in facts.steps.rows
        if row["grad_norm"] is not None and row["loss"] is not None and math.isfinite(row["loss"])
    ]
    newest = known[-WINDOW:]
    bad = [row for row in newest if not math.isfinite(row["grad_norm"])]
    if len(newest) < _NORMED or len(bad) < _HALF * len(newest):
        return
    if newest[-1]["amp_scale"] is not None:
        return  # a scaler looks for a scale with which they are
    finite = [row["step"] for row in known if math.isfinite(row["grad_norm"])]
    first = bad_pass(facts)
    is_left_out = not any(row["optimizer_steps"] for row in bad)
    left_out = "; the script makes no optimizer step then" if is_left_out else ""
    yield Sign(
        certainty="certain",
        summary=f"The gradients are NaN or infinite in {percent(len(bad) / len(newest))} of the"
        f" steps, though the loss is finite{first.summary}{left_out}",
        since_step=None if finite else known[0]["step"],
        evidence=(
            f"the norm that the script takes is not finite in {len(bad)} of the last {len(newest)}"
            " steps with a finite loss",
            *first.evidence,
        ),
        weight=1.0,
        fix=first.fix,
    )


_QUERY = (
    'probing ENDPOINT query "SELECT step, parameter, {} FROM python.gradients'
    ' ORDER BY step DESC LIMIT 20"'
)


RULES = (
    Rule(
        name="gradients-not-finite",
        group="numbers",
        subject="gradients",
        symptom="The loss does not fall, and the script leaves out steps whose gradients are not"
        " finite.",
        evidence="`grad_norm` of python.steps: NaN or infinite in half of the last steps with a"
        f" finite loss, {_NORMED} at least. Under a gradient scaler that is `scaler-skips`.",
        certainty="certain",
        gravity=78,
        fix="Find what divides by 0, or takes a root of it, in the backward pass.",
        source="https://pytorch.org/docs/stable/notes/numerical_accuracy.html",
        next="probing ENDPOINT arm nan --steps 3",
        look=_not_finite,
    ),
    Rule(
        name="no-update",
        group="numbers",
        subject="optimizer",
        symptom="The loss does not fall at all, though gradients and rate are as they should be.",
        evidence=(
            "`update_ratio` of python.gradients over 3 steps: exactly 0 for all parameters, with"
            " rate and gradients that are not; only possible where rate times gradient is less than"
            " a millionth of the weights, LBFGS may have converged, or the rate has halved. Likely"
            " of weights in half precision where half of the changes are too small for their type."
            " Not in a warm-up."
        ),
        certainty="certain",
        gravity=77,
        fix="Look at what undoes the step: weights that are loaded again, an optimizer of copies.",
        next=_QUERY.format("norm, update_ratio"),
        look=_no_update,
        cost_s=SAMPLING_S,
    ),
    Rule(
        name="thrown-gradients",
        group="numbers",
        subject="optimizer",
        symptom="Accumulation changes nothing, or the loss falls far more slowly than it should.",
        evidence=(
            "`passes` and `kept_passes` of python.gradients over 3 steps: in each with several"
            " backward passes all gradients have lost some before the optimizer used them. Likely"
            " where the losses are divided by their number, each pass has a batch of its own, or"
            " their number varies; else it may be an attack on the inputs."
        ),
        certainty="likely",
        gravity=72,
        fix="Call optimizer.zero_grad() once in each step, not in the loop over micro-batches.",
        source="https://pytorch.org/docs/stable/optim.html",
        next=_QUERY.format("passes, kept_passes"),
        look=_thrown,
        cost_s=SAMPLING_S,
    ),
    Rule(
        name="denormals",
        group="slow",
        subject="numbers",
        symptom="Steps become slower on a CPU as numbers become smaller.",
        evidence=(
            "`subnormal_share`, `weight_subnormal_share` and `state_subnormal_share` of"
            f" python.gradients over 3 steps: {percent(_SUBNORMAL)} of one of them (of Adam's"
            " state half); likely where the phases that compute with them have become slower, by"
            f" {percent(_FELT)} of a step, and nobody else uses the machine."
        ),
        certainty="likely",
        gravity=50,
        fix="torch.set_flush_denormal(True) at the start, in each thread that computes; or find"
        " what decays for ever: momentum of what has no gradient, weights, hidden states.",
        source="https://pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",
        next=_QUERY.format("subnormal_share, weight_subnormal_share, state_subnormal_share"),
        look=_denormals,
        cost_s=SAMPLING_S,
    ),
)
