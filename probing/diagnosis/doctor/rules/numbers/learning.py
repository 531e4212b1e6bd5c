"""Rules about how it learns: the learning rate, clipping, the gradient scaler."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .....units import figure
from ...facts import MOST_STEPS, Facts
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from ...series import Floats
from .acted import Acted, rate_act
from .gradients import SAMPLING_S, sampled
from .losses import LOSS_QUERY
from .rates import (
    FEW_STEPS,
    RATE_JUMP,
    TRAINED,
    begins_anew,
    losses_around,
    middle_of,
    newest_training,
    raised,
)

_CUT = 50.0
"""Schedules lower a rate by 10 at once, and those that come to their end in many small steps."""
_CUT_STEPS = 8
_BEFORE = f"SELECT max(lr) AS lr FROM (FROM python.steps ORDER BY seq DESC OFFSET {MOST_STEPS})"  # noqa: S608 - a number
"""The largest rate of the steps before those that are looked at."""
_ZERO_RATE = 1e-5
_ZERO_STEPS = 30
_MANY_CLIPPED = 20
_BY_SIZE = ("SGD", "ASGD", "LBFGS")
"""The size of a gradient is that of their step; others divide by it."""
_NO_SLOWER = 28
"""How grave it is where the optimizer divides by that size: steps are as large as without."""
_ALWAYS, _MUCH_CUT = 0.95, 0.1
"""Large models are clipped to a norm of 1 in every step of their first hours, and meant to be."""


def _rate_jumps(facts: Facts) -> Iterator[Sign]:
    """The learning rate was raised far above all that it was."""
    steps = newest_training(facts)
    is_all = 0 < len(steps) == len(facts.steps)
    before = facts.rows(_BEFORE)[0]["lr"] or 0.0 if is_all else 0.0
    for found in raised(steps):
        act = rate_act(facts, found.step)
        if found.after < RATE_JUMP * before or (act is not None and act.is_undone):
            continue
        around = losses_around(steps, found)
        yield Sign(
            certainty="likely" if around.is_worse else "possible",
            summary=found.sentence
            + _by(act)
            + f", and the loss has gone from {figure(around.before)} to {figure(around.after)}"
            * around.is_worse,
            since_step=found.step,
            evidence=(*_told(act), "no step before it on record had such a rate"),
            weight=0.9,
            fix=_fix(act, facts),
        )
        return


def _by(act: Acted | None) -> str:
    """Who has set the rate, where that is known."""
    return "" if act is None else f", by {act.words}"


def _told(act: Acted | None) -> tuple[str, ...]:
    return () if act is None else (act.evidence,)


def _fix(act: Acted | None, facts: Facts) -> str:
    """What to do about what an action has done; empty for what the rule says."""
    return "" if act is None else act.fix(facts)


def _rate_cut(facts: Facts) -> Iterator[Sign]:
    """The learning rate was cut at once, while it was large, and has stayed so."""
    steps = newest_training(facts)
    rates = steps.column("lr")
    if len(rates) < FEW_STEPS + _CUT_STEPS or not np.isfinite(rates).all():
        return
    most, since = float(rates.max()), len(rates)  # a warm-up may have begun at any rate
    while since and rates[since - 1] <= most / _CUT:
        since -= 1
    if not FEW_STEPS <= since <= len(rates) - _CUT_STEPS:
        return
    earlier, now = rates[since - FEW_STEPS : since], float(rates[since:].max())
    old = float(earlier[-1])
    if now * _CUT > float(earlier.min()) or old < 0.1 * most or begins_anew(facts, steps, since):
        return
    act = rate_act(facts, steps.numbers[since])
    if act is not None and act.is_undone:
        return
    losses = steps.column("loss")
    before, after = middle_of(losses[max(0, since - 20) : since]), middle_of(losses[-20:])
    learns = math.isfinite(after) and after < 0.9 * before
    yield Sign(
        certainty="possible",
        summary="The learning rate was"
        + (f" divided by {figure(old / now, 3)}" if now else " set to zero")
        + f" at step {steps.numbers[since]}, from {figure(old, 3)}"
        + f" to {figure(float(rates[since]), 3)}{_by(act)}"
        + ("" if learns else ", and the loss has not fallen since"),
        since_step=steps.numbers[since],
        evidence=(
            *_told(act),
            f"{len(rates) - since} steps have been made since",
            *(() if learns else (f"the loss was {figure(before)} there, and is {figure(after)}",)),
        ),
        weight=0.3 if learns else 0.7,
        fix=_fix(act, facts),
    )


def _rate_zero(facts: Facts) -> Iterator[Sign]:
    """The learning rate is zero, and steps are made all the same."""
    steps = facts.steps
    rates = steps.column("lr")
    known = rates[np.isfinite(rates)]
    if len(known) < FEW_STEPS or len(known) != len(rates) or not facts.is_alive:
        return
    most = float(known.max())
    # A schedule that has come to its end is near zero in its last few steps only.
    last = len(known)
    while last and known[last - 1] <= _ZERO_RATE * most:
        last -= 1
    number = len(known) - last
    if number < max(_ZERO_STEPS, 0.1 * len(known)) and not (most == 0 and number >= _ZERO_STEPS):
        return
    if _another_group_learns(facts, most):
        return
    act = rate_act(facts, steps.numbers[last])
    before = f", and was {figure(most, 3)} at most before: nothing is learned any more"
    yield Sign(
        certainty="likely",
        summary=_tiny_since(known[last:], steps.numbers[last])
        + _by(act)
        + (before if most else ", the first on record: nothing is learned"),
        since_step=steps.numbers[last],
        evidence=(*_told(act), f"{number} steps have been made since"),
        weight=0.8,
        fix=_fix(act, facts),
    )


def _tiny_since(rates: Floats, step: int) -> str:
    """What the rate has been since a step, and what it is where it has fallen further."""
    first, now = ("zero" if rate == 0 else figure(rate, 2) for rate in (rates.max(), rates[-1]))
    if first == now:
        return f"The learning rate has been {now} since step {step}"
    return f"The learning rate has been {first} or less since step {step}, is {now} now"


def _another_group_learns(facts: Facts, most: float) -> bool:
    """Whether the rate on record is that of a first group, and others of that optimizer learn."""
    try:
        rows = facts.live("optimizers")
    except NotLookedAt:
        return False
    limit = _ZERO_RATE * most
    still = {
        row.get("optimizer_id")
        for row in rows
        if not row.get("param_group") and row["lr"] is not None and row["lr"] <= limit
    }
    return any(
        row.get("optimizer_id") in still and row["lr"] is not None and row["lr"] > limit
        for row in rows
    )


def _clipping(facts: Facts) -> Iterator[Sign]:
    """Clipping takes nearly all of the gradient, in nearly all steps."""
    now = facts.now(least=20)
    norms, clipped = now.column("grad_norm"), now.column("clipped_norm")
    known = np.isfinite(norms) & np.isfinite(clipped) & (norms > 0)
    if known.sum() < 20:
        return
    kept = clipped[known] / norms[known]
    part, usual = float(np.mean(kept < 0.99)), float(np.median(kept))
    if part < _ALWAYS or usual > _MUCH_CUT:
        return
    by_size = now.rows[-1]["optimizer"] in _BY_SIZE
    slows = by_size and usual < 0.01
    yield Sign(
        certainty="likely" if slows else "possible",
        summary=f"Clipping cuts the gradients in {100 * part:.0f} % of the steps, to"
        f" {100 * usual:.2g} % of their norm: {figure(float(np.median(norms[known])), 3)} before,"
        f" {figure(float(np.median(clipped[known])), 3)} after",
        evidence=(f"{int(known.sum())} of the last {len(now)} steps were clipped",),
        weight=0.7 if slows else 0.2,
        gravity=None if by_size else _NO_SLOWER,
    )


def _clips_nothing(facts: Facts) -> Iterator[Sign]:
    """The norm that the script clips by is 0, and that of the gradients is not."""
    now = facts.now(least=_MANY_CLIPPED)
    norms = [row["grad_norm"] for row in now.rows if row["grad_norm"] is not None]
    of_one = [row["optimizer_steps"] in {None, 1} for row in now.rows]
    if len(norms) < _MANY_CLIPPED or any(norm != 0 for norm in norms) or not all(of_one):
        return
    by_step: dict[int, float] = {}
    for row in sampled(facts):
        by_step[row["step"]] = by_step.get(row["step"], 0.0) + (row["norm"] or 0.0) ** 2
    least = min((total**0.5 for total in by_step.values()), default=0.0)
    if not least > 0:
        return
    yield Sign(
        certainty="likely",
        summary="The script's clip_grad_norm_ clips nothing: the norm that it takes is 0 in each of"
        f" the last {len(norms)} steps, and the gradients have one of {figure(least, 3)} and more",
        evidence=(f"gradients of {len(by_step)} steps were looked at, parameter by parameter",),
        weight=0.7,
    )


def _skipping(facts: Facts) -> Iterator[Sign]:
    """The gradient scaler leaves out most steps."""
    rows = [*facts.steps.rows[-40:], *filter(None, [facts.steps.open])]
    skips = sum(row["skipped"] or 0 for row in rows)
    made = sum(1 for row in rows if row["optimizer"] is not None or not row["skipped"])
    scales = [row["amp_scale"] for row in facts.steps.rows if row["amp_scale"] is not None]
    if not len(facts.steps):
        yield from _all_skipped(facts)
        return
    if skips < 10 or skips < made:
        return
    yield Sign(
        certainty="likely",
        summary=f"The gradient scaler leaves out most steps: {skips} of the last {skips + made},"
        " since their gradients are not finite",
        since_step=next((r["step"] for r in rows if r["skipped"]), None),
        evidence=tuple(
            f"its scale is {figure(now, 3)}, and was {figure(max(scales), 3)}"
            for now in scales[-1:]
        ),
        weight=0.9,
    )  # fmt: skip


def _all_skipped(facts: Facts) -> Iterator[Sign]:
    """No step is on record, since the scaler has left out all of them."""
    skips = max((row["skipped"] or 0 for row in facts.live("optimizers")), default=0)
    if skips < 10:
        return
    yield Sign(
        certainty="likely",
        summary=f"The gradient scaler leaves out every step, {skips} until now, since the gradients"
        " are not finite: nothing is learned",
        evidence=("`skipped` of python.optimizers, and no step of an optimizer on record",),
        weight=1.0,
    )


RULES = (
    Rule(
        name="rate-raised",
        group="numbers",
        subject="learning rate",
        symptom="The loss shoots up, or falls no more.",
        evidence=(
            "`lr` of python.steps: three times the largest before, after 50 steps or more; likely"
            " where the loss is a fifth higher since. Of several trainings in one process the"
            " newest is looked at. One by `act` is told as that, until it is undone."
        ),
        certainty="likely",
        gravity=82,
        fix="Find who sets it (a thread, a callback, a schedule with a wrong factor); meanwhile"
        " `probing PID act lr --scale`.",
        next=LOSS_QUERY,
        asks=(TRAINED,),
        look=_rate_jumps,
    ),
    Rule(
        name="rate-cut",
        group="numbers",
        subject="learning rate",
        symptom="The loss fell, and from one step on stays where it is.",
        evidence=f"`lr` of python.steps: a {_CUT:.0f}th or less of that of the {FEW_STEPS} steps"
        " before, from one step to the next, and in all steps since, of the same optimizer. A new"
        " phase may be meant to train so.",
        certainty="possible",
        gravity=71,
        fix="Find who sets it (a thread, a callback, a plateau or milestones with a wrong factor,"
        " a state that was loaded); meanwhile `probing PID act lr --scale`.",
        next=LOSS_QUERY,
        asks=(TRAINED,),
        look=_rate_cut,
    ),
    Rule(
        name="rate-zero",
        group="numbers",
        subject="learning rate",
        symptom="The loss stays where it is, though it had fallen.",
        evidence="`lr` of python.steps: below 1/100,000 of its largest for 30 steps and a tenth of"
        " the record, while steps are made. A schedule that ends at zero is there in its last steps"
        " only.",
        certainty="likely",
        gravity=72,
        fix="Look at the schedule: an integer division, or scheduler.step() in each batch instead"
        " of each epoch.",
        source="https://pytorch.org/docs/stable/optim.html",
        next=LOSS_QUERY,
        look=_rate_zero,
    ),
    Rule(
        name="clipping",
        group="numbers",
        subject="gradients",
        symptom="The training learns far more slowly than its learning rate says.",
        evidence="`grad_norm` and `clipped_norm` of python.steps: cut in 95 % of the steps, to less"
        " than 10 %; likely below 1 % under an optimizer that does not divide gradients by their"
        f" size ({', '.join(_BY_SIZE)}); told after most others under one that does.",
        certainty="likely",
        gravity=56,
        fix="Raise the norm that is clipped to: about what `grad_norm` usually is.",
        next='probing ENDPOINT query "SELECT step, grad_norm, clipped_norm FROM python.steps'
        ' ORDER BY step DESC LIMIT 20"',
        look=_clipping,
    ),
    Rule(
        name="clips-nothing",
        group="numbers",
        subject="gradients",
        symptom="The loss jumps or explodes, though the script clips gradients.",
        evidence="`grad_norm` of python.steps: the script clips by a norm of 0 in each"
        f" of {_MANY_CLIPPED} steps or more, and gradients that are sampled are not 0."
        " Steps of several optimizers are not judged.",
        certainty="likely",
        gravity=63,
        fix="Give clip_grad_norm_ the parameters anew, or a list of them: an iterator, as"
        " filter(...) or model.parameters() kept in a variable, is used up by who goes through it"
        " first, such as the optimizer.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        next='probing ENDPOINT query "SELECT step, grad_norm, clipped_norm FROM python.steps'
        ' ORDER BY step DESC LIMIT 20"',
        look=_clips_nothing,
        cost_s=SAMPLING_S,
    ),
    Rule(
        name="scaler-skips",
        group="numbers",
        subject="gradients",
        symptom="The weights do not change though backward passes are made.",
        evidence="`skipped` of python.steps: ten or more, and more than were made, in the last 40"
        " steps. A scaler that finds its scale skips some at the start only.",
        certainty="likely",
        gravity=76,
        fix="Find what is not finite: `probing PID arm nan` names the module; bfloat16 needs no"
        " scaler.",
        source="https://pytorch.org/docs/stable/amp.html",
        next="probing ENDPOINT arm nan --steps 3",
        look=_skipping,
    ),
)
