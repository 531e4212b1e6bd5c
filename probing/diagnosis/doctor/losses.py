"""Rules about the loss, the learning rate and the scale: what python.steps says of learning.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. Noise is
measured by medians, so that one bad batch is told as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...postmortem.not_finite import SINCE, since_of
from .facts import WINDOW, Facts, Steps
from .findings import NotLookedAt, Rule, Sign
from .series import Floats

if TYPE_CHECKING:
    from ...messages.labels import LabelsAnswer

_FEW_STEPS = 50
_SPIKE = 8.0
"""A spike stands so many robust standard deviations above the losses before it,"""
_SPIKE_RATIO = 2.0
"""and is this many times as large as they are."""
_SPIKE_PART = 0.15
"""and by this part of what the loss was at first: near its floor a loss is all noise."""
_MOST_SPIKES = 3
_STAYED = 40
"""A loss that has not come back in so many steps stays up."""
_DIVERGED = 10.0
_ZERO_RATE = 1e-5
_ZERO_STEPS = 30
_RATE_JUMP = 3.0
_TOO_GOOD = 0.05
_ALWAYS = 0.95
_LABELS_S = 2.0
_SIGMA = 1.4826
"""By which a median of absolute deviations estimates a standard deviation of normal noise."""


def _not_finite(facts: Facts) -> Iterator[Sign]:
    """The loss is NaN or infinite."""
    found = since_of(facts.rows(SINCE))
    if found is None:
        return
    steps = facts.steps
    before = Steps([row for row in steps.rows if row["step"] < found.step])
    words, fix, more = _before_nan(before)
    yield Sign(
        certainty="certain",
        summary=found.sentence()[0].upper() + found.sentence()[1:] + words,
        since_step=found.step,
        evidence=(*more, *_ignored_labels(facts)),
        weight=1.0,
        fix=_IGNORED_FIX if _ignored_labels(facts) else fix,
    )


def _before_nan(before: Steps) -> tuple[str, str, tuple[str, ...]]:
    """How the steps before the first bad one were: what follows, what to do, and the figures."""
    losses = _losses(before)
    if len(losses) < 2:
        return "", _FIND_FIRST, ()
    last, least = float(losses[-1]), float(np.median(losses[: max(1, len(losses) // 2)]))
    norms = before.column("grad_norm")
    norms = norms[np.isfinite(norms)]
    rising = len(losses) >= 4 and last > _DIVERGED * abs(least)
    exploding = len(norms) >= 4 and norms[-1] > 1e3 * float(np.median(norms))
    figures = (f"the loss was {last:.4g} in the step before, and {least:.4g} in the middle",)
    if rising or exploding:
        return "; it has diverged: it grew before that", _LOWER_RATE, figures
    return "; it was as usual up to the step before", _FIND_FIRST, figures


_ONE_BATCH = (
    "Look at the batch of that step: other data, another scale or another order of channels than"
    " the rest."
)
_LOWER_RATE = "Lower the learning rate, or clip the gradients: clip_grad_norm_(..., 1.0)."
_FIND_FIRST = (
    "Restart from the last checkpoint before that, and have `probing PID arm nan` name the first"
    " module, or the batch, whose values are not finite."
)
_IGNORED_FIX = (
    "Leave out batches in which all labels are ignored, or divide by max(1, labels that count)."
)


def _ignored_labels(facts: Facts) -> tuple[str, ...]:
    """That no label of the newest batch counts, where labels can be had."""
    answer = _labels(facts)
    if answer is None or answer.trained or not answer.ignored:
        return ()
    return (f"all {answer.ignored:,} labels of the next batch are ignored",)


def _labels(facts: Facts) -> LabelsAnswer | None:
    """Labels of the next batch beside its tokens; None where they cannot be had."""
    try:
        return facts.ask("labels", lambda: facts.process.labels(samples=1, timeout_s=_LABELS_S))
    except NotLookedAt:
        return None


def _diverging(facts: Facts) -> Iterator[Sign]:
    """The loss has grown far beyond what it was."""
    steps = facts.steps.settled()
    losses = _losses(steps)
    if len(losses) < _FEW_STEPS or since_of(facts.rows(SINCE)) is not None:
        return
    best = _smooth(losses)
    place = int(np.argmin(best))
    now = float(np.median(losses[-10:]))
    first = float(losses[:20].max())
    if place > len(losses) - 20 or best[place] <= 0 or now < max(_DIVERGED * best[place], first):
        return
    if float(np.min(best[-_FEW_STEPS:])) < 3 * best[place]:
        return  # it comes back again and again
    if any(place <= jump <= place + 15 for jump in _spikes(losses)):
        return  # it did not grow: it jumped, which `loss-spike` tells
    noise = _noise(losses[: place + 10])
    if now - best[place] < _SPIKE * noise:
        return
    yield Sign(
        certainty="likely",
        summary=f"The loss diverges: {now:.4g} now, {best[place]:.4g} at step"
        f" {steps.numbers[place]}",
        since_step=steps.numbers[place],
        weight=0.8,
        evidence=_rate_words(steps),
    )


def _spike(facts: Facts) -> Iterator[Sign]:
    """One step's loss stands far above those around it."""
    steps = facts.steps.settled()
    losses = _losses(steps)
    if len(losses) < _FEW_STEPS or len(losses) != len(steps) or losses.min() < 0:
        return
    spikes = _spikes(losses)
    if not 1 <= len(spikes) <= _MOST_SPIKES:
        return
    place = max(spikes, key=lambda at: losses[at])
    usual = float(np.median(losses[max(0, place - 30) : place]))
    row = steps.rows[place]
    rate = _jump_at(steps, place)
    after = losses[place + 1 : place + 4]
    back = len(after) < 3 or float(np.median(after)) < usual + 0.3 * (losses[place] - usual)
    half = usual + 0.5 * (losses[place] - usual)
    stays = len(losses) - place > _STAYED and float(np.median(losses[-10:])) > half
    yield Sign(
        certainty="likely" if back or rate or stays else "possible",
        summary=f"The loss jumps at step {row['step']}: {losses[place]:.4g}, and {usual:.4g} before"
        + (", and has not come back since" if stays else "" if back else ", and falls again slowly")
        + (f". The learning rate was multiplied by {rate:.3g} there" if rate else ""),
        since_step=row["step"],
        evidence=(
            f"{(losses[place] - usual) / _noise(losses[max(0, place - 30) : place]):.0f} standard"
            " deviations above the 30 steps before",
            *_norm_words(steps, place),
        ),
        weight=1.0 if stays else 0.5,
        fix="" if rate else _ONE_BATCH,
    )


def _spikes(losses: Floats) -> list[int]:
    """The places of the losses that stand out of the thirty before them; a run counts once."""
    found: list[int] = []
    least = _SPIKE_PART * abs(float(np.median(losses[:10])))
    for place in range(30, len(losses)):
        before = losses[place - 30 : place]
        usual = float(np.median(before))
        value = float(losses[place])
        rise = max(least, _SPIKE * _noise(before))
        if value > _SPIKE_RATIO * abs(usual) and value - usual > rise:
            if found and place - found[-1] <= 15:
                continue
            found.append(place)
    return found


def _rate_jumps(facts: Facts) -> Iterator[Sign]:
    """The learning rate was raised far above all that it was."""
    steps = facts.steps
    rates = steps.column("lr")
    known = np.isfinite(rates)
    for place in range(_FEW_STEPS, len(rates)):
        earlier = rates[:place][known[:place]]
        if not known[place] or not len(earlier) or earlier[-1] <= 0:
            continue
        factor = rates[place] / float(earlier.max())
        if factor < _RATE_JUMP or rates[place] < _RATE_JUMP * earlier[-1]:
            continue
        losses = steps.column("loss")
        old = _middle(losses[max(0, place - 20) : place])
        new = _middle(losses[place : place + 20])
        worse = math.isfinite(old) and (not math.isfinite(new) or new > 1.2 * old)
        yield Sign(
            certainty="likely" if worse else "possible",
            summary=f"The learning rate was multiplied by {rates[place] / earlier[-1]:.3g} at step"
            f" {steps.numbers[place]}, from {earlier[-1]:.3g} to {rates[place]:.3g}"
            + (f", and the loss has gone from {old:.4g} to {new:.4g}" if worse else ""),
            since_step=steps.numbers[place],
            evidence=("no step before had such a rate",),
            weight=0.9,
        )
        return


def _rate_zero(facts: Facts) -> Iterator[Sign]:
    """The learning rate is zero, and steps are made all the same."""
    steps = facts.steps
    rates = steps.column("lr")
    known = rates[np.isfinite(rates)]
    if len(known) < _FEW_STEPS or len(known) != len(rates) or not facts.is_alive:
        return
    most = float(known.max())
    # A schedule that has come to its end is near zero in its last few steps only.
    last = len(known)
    while last and known[last - 1] <= _ZERO_RATE * most:
        last -= 1
    number = len(known) - last
    if number < max(_ZERO_STEPS, 0.1 * len(known)) and not (most == 0 and number >= _ZERO_STEPS):
        return
    yield Sign(
        certainty="likely",
        summary=f"The learning rate has been {'zero' if known[-1] == 0 else f'{known[-1]:.2g}'}"
        f" since step {steps.numbers[last]}, and {most:.3g} at most before: nothing is learned"
        " any more",
        since_step=steps.numbers[last],
        evidence=(f"{number} steps have been made since",),
        weight=0.8,
    )


def _flat(facts: Facts) -> Iterator[Sign]:
    """The loss is where it was at the start."""
    steps = facts.steps
    losses = _losses(steps)
    if not steps.begins_at_start or len(losses) < 2 * WINDOW or len(losses) != len(steps):
        return
    first, last = losses[:20], losses[-WINDOW:]
    before, now = float(np.median(first)), float(np.median(last))
    if (
        before <= 0
        or now < 0.9 * before
        or now > 2 * before
        or min(_smooth(losses, 40)[40:]) < 0.85 * before
    ):
        return
    yield Sign(
        certainty="possible",
        summary=f"The loss has not fallen in {len(losses)} steps: {before:.4g} in the first,"
        f" {now:.4g} now",
        since_step=steps.numbers[0],
        evidence=_rate_words(steps),
        weight=0.5,
    )


def _too_good(facts: Facts) -> Iterator[Sign]:
    """A language model's loss is next to nothing within few steps."""
    steps = facts.steps
    losses = _losses(steps)
    tokens = steps.column("tokens")
    if not steps.begins_at_start or len(losses) < 20 or np.isnan(tokens).all():
        return
    low = np.flatnonzero(_smooth(losses) < _TOO_GOOD)
    if not len(low) or low[0] > 1000 or losses[0] < 20 * _TOO_GOOD:
        return
    answer = _labels(facts)
    if answer is None or answer.shift != "equal":
        return
    yield Sign(
        certainty="likely",
        summary=f"The loss of this language model is {losses[-1]:.2g} after {steps.numbers[-1]}"
        " steps: the labels of the next batch are its own tokens, not shifted, so that it sees what"
        " it has to predict",
        since_step=steps.numbers[int(low[0])],
        evidence=(f"it was {losses[0]:.3g} in the first step",),
        weight=0.9,
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
    if part < _ALWAYS or usual > 0.3:
        return
    yield Sign(
        certainty="likely" if usual < 0.01 else "possible",
        summary=f"Clipping cuts the gradients in {100 * part:.0f} % of the steps, to"
        f" {100 * usual:.2g} % of their norm: {float(np.median(norms[known])):.3g} before,"
        f" {float(np.median(clipped[known])):.3g} after",
        evidence=(f"{int(known.sum())} of the last {len(now)} steps were clipped",),
        weight=0.7 if usual < 0.01 else 0.2,
    )


def _skipping(facts: Facts) -> Iterator[Sign]:
    """The gradient scaler leaves out most steps."""
    rows = [*facts.steps.rows[-40:], *filter(None, [facts.steps.open])]
    skips = sum(row["skipped"] or 0 for row in rows)
    made = len(rows)
    scales = [row["amp_scale"] for row in facts.steps.rows if row["amp_scale"] is not None]
    if not made:
        yield from _all_skipped(facts)
        return
    if skips < 10 or skips < made:
        return
    yield Sign(
        certainty="likely",
        summary=f"The gradient scaler leaves out most steps: {skips} of the last {skips + made},"
        " since their gradients are not finite",
        since_step=next((r["step"] for r in rows if r["skipped"]), None),
        evidence=(
            *((f"its scale is {scales[-1]:.3g}, and was {max(scales):.3g}",) if scales else ()),
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


def _losses(steps: Steps) -> Floats:
    values = steps.column("loss")
    return values[np.isfinite(values)]


def _smooth(values: Floats, width: int = 10) -> Floats:
    """Running medians."""
    width = min(width, len(values))
    return np.array(
        [np.median(values[max(0, at - width + 1) : at + 1]) for at in range(len(values))]
    )


def _noise(values: Floats) -> float:
    """A robust standard deviation, never 0."""
    middle = np.median(values)
    return max(_SIGMA * float(np.median(np.abs(values - middle))), 0.02 * abs(float(middle)), 1e-12)


def _middle(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


def _jump_at(steps: Steps, place: int) -> float | None:
    """By what the rate was multiplied within a few steps before a place, if by much."""
    rates = steps.column("lr")
    old, new = _middle(rates[max(0, place - 20) : max(1, place - 5)]), rates[place]
    return float(new / old) if old > 0 and new > _RATE_JUMP * old else None


def _norm_words(steps: Steps, place: int) -> tuple[str, ...]:
    norm = steps.rows[place]["grad_norm"]
    usual = _middle(steps.column("grad_norm")[max(0, place - 30) : place])
    if norm is None or not math.isfinite(usual):
        return ()
    return (f"the norm of the gradients was {norm:.3g} there, and {usual:.3g} before",)


def _rate_words(steps: Steps) -> tuple[str, ...]:
    rate = steps.rows[-1]["lr"]
    return () if rate is None else (f"the learning rate is {rate:.3g}",)


_LOSS_QUERY = (
    'probing ENDPOINT query "SELECT step, loss, grad_norm, lr FROM python.steps'
    ' ORDER BY step DESC LIMIT 30"'
)
RULES = (
    Rule(
        name="loss-not-finite",
        group="numbers",
        subject="loss",
        symptom="The loss is NaN or infinite, and nothing is learned any more.",
        evidence="`loss` of python.steps: not finite in the newest step that has one; the first"
        " such step, and whether loss or gradients grew before it.",
        certainty="certain",
        gravity=88,
        fix=_FIND_FIRST,
        source="https://pytorch.org/docs/stable/notes/numerical_accuracy.html",
        next="probing ENDPOINT arm nan --steps 3",
        look=_not_finite,
    ),
    Rule(
        name="diverging",
        group="numbers",
        subject="loss",
        symptom="The loss grows.",
        evidence="`loss` of python.steps: ten times its best running median, 8 robust standard"
        " deviations above it, and above what it was at first.",
        certainty="likely",
        gravity=80,
        fix=_LOWER_RATE,
        next=_LOSS_QUERY,
        look=_diverging,
    ),
    Rule(
        name="rate-raised",
        group="numbers",
        subject="learning rate",
        symptom="The loss shoots up, or falls no more.",
        evidence="`lr` of python.steps: three times the largest before, after 50 steps or more;"
        " likely where the loss is a fifth higher since.",
        certainty="likely",
        gravity=82,
        fix="Find who sets it (a thread, a callback, a schedule with a wrong factor); meanwhile"
        " `probing PID act lr --scale`.",
        next=_LOSS_QUERY,
        look=_rate_jumps,
    ),
    Rule(
        name="loss-spike",
        group="numbers",
        subject="loss",
        symptom="The loss jumps in one step.",
        evidence="`loss` of python.steps: twice the median of the 30 steps before, 8 robust"
        " standard deviations and a seventh of the first losses above it (near its floor a loss is"
        " all noise); no more than three times in the record. Only possible where it falls again"
        " slowly: new data, a new phase.",
        certainty="likely",
        gravity=62,
        fix="Look at what changed there: data, learning rate, precision.",
        next=_LOSS_QUERY,
        look=_spike,
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
        next=_LOSS_QUERY,
        look=_rate_zero,
    ),
    Rule(
        name="loss-flat",
        group="numbers",
        subject="loss",
        symptom="Nothing is learned from the first step on.",
        evidence="`loss` of python.steps from the start, 200 steps or more: its running median was"
        " never a seventh below that of the first 20 steps.",
        certainty="possible",
        gravity=50,
        fix="Check that labels belong to their inputs (look at a batch), and that the rate is not"
        " far too small; a model must be able to learn one batch by heart.",
        source="https://karpathy.github.io/2019/04/25/recipe/",
        next=_LOSS_QUERY,
        look=_flat,
    ),
    Rule(
        name="loss-too-good",
        group="numbers",
        subject="loss",
        symptom="A language model predicts perfectly within some steps.",
        evidence=f"`loss` below {_TOO_GOOD} within 1,000 steps, where `tokens` are counted, and the"
        " labels of a batch are its tokens and not those that follow.",
        certainty="likely",
        gravity=64,
        fix="Shift the labels by one position: logits[:, :-1] against tokens[:, 1:].",
        next="probing ENDPOINT labels",
        look=_too_good,
    ),
    Rule(
        name="clipping",
        group="numbers",
        subject="gradients",
        symptom="The training learns far more slowly than its learning rate says.",
        evidence="`grad_norm` and `clipped_norm` of python.steps: cut in 95 % of the steps, to less"
        " than 30 %; likely below 1 %.",
        certainty="likely",
        gravity=56,
        fix="Raise the norm that is clipped to: about what `grad_norm` usually is.",
        next='probing ENDPOINT query "SELECT step, grad_norm, clipped_norm FROM python.steps'
        ' ORDER BY step DESC LIMIT 20"',
        look=_clipping,
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
