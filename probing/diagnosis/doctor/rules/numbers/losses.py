"""Rules about the loss, the learning rate and the scale: what python.steps says of learning.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end. Noise is
measured by medians, so that one bad batch is told as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .....postmortem.not_finite import SINCE, since_of
from .....units import figure
from ...facts import Facts, Steps
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from ...series import Floats
from .acted import rate_act
from .not_finite.first_bad import first_bad
from .not_finite.unended import lost_in_progress, or_by_file, restart_before
from .rates import (
    FEW_STEPS,
    TRAINED,
    begins_anew,
    cause_of,
    is_restart,
    jump_at,
    middle_of,
    newest_training,
    rate_words,
)
from .steadier import STEADIER, steadier

if TYPE_CHECKING:
    from .....messages.about.labels import LabelsAnswer


_SPIKE = 8.0
"""A spike stands so many robust standard deviations above the losses before it,"""
_SPIKE_RATIO = 2.0
"""and is this many times as large as they are."""
_SPIKE_PART = 0.15
"""and by this part of what the loss was at first: near its floor a loss is all noise."""
_SURE_SPIKE, _SURE_RATIO = 15.0, 4.0
_MOST_SPIKES = 3
_STAYED, _UNSETTLED = 40, 100
"""A loss that has not come back in so many steps stays up."""
_DIVERGED = 10.0
_ASKED = (
    "SELECT step, sum(samples) / sum(calls) AS samples FROM python.evaluations"
    " WHERE step >= {first} AND data_wait_s IS NULL GROUP BY step HAVING sum(calls) > 1"
)
_OFTEN, _FEWER = 3, 0.5
"""Who collects what it trains on has so many phases of it; it then asks for fewer at once."""
_STANDS = 1.1
_POLICY = "that of a policy grows, too, with the rewards that it comes to expect"
_TOO_GOOD = 0.05
_LABELS_S = 2.0
_SIGMA = 1.4826
"""By which a median of absolute deviations estimates a standard deviation of normal noise."""


def _not_finite(facts: Facts) -> Iterator[Sign]:
    """The loss is NaN or infinite."""
    lost, found = lost_in_progress(facts), since_of(facts.rows(SINCE))
    if found is None and lost is not None:
        found = lost.since
    if found is None:
        return
    steps, skips = facts.steps, lost.words if lost else ""
    before = Steps([row for row in steps.rows if row["step"] < found.step])
    words, fix, more = _before_nan(facts, before)
    first = first_bad(facts, found.step)
    yield Sign(
        certainty="certain",
        summary=found.sentence()[0].upper() + found.sentence()[1:] + skips + words + first.summary,
        since_step=found.step,
        evidence=(
            *more,
            *first.evidence,
            *ignored_labels(facts),
            *restart_before(facts, found.step),
        ),
        weight=1.0,
        fix=_IGNORED_FIX if ignored_labels(facts) else first.fix or fix,
    )


def _before_nan(facts: Facts, before: Steps) -> tuple[str, str, tuple[str, ...]]:
    """How the steps before the first bad one were: what follows, what to do, and the figures."""
    losses = losses_of(before)
    if len(losses) < 2:
        return "", _FIND_FIRST if len(before) else _FROM_START, ()
    last, least = float(losses[-1]), float(np.median(losses[: max(1, len(losses) // 2)]))
    norms = before.column("grad_norm")
    norms = norms[np.isfinite(norms)]
    rising = len(losses) >= 4 and last > _DIVERGED * abs(least)
    exploding = len(norms) >= 4 and norms[-1] > 1e3 * float(np.median(norms))
    figures = (
        f"the loss was {figure(last)} in the step before; the median of the first half of the steps"
        f" before is {figure(least)}",
    )
    if rising or exploding:
        cause = cause_of(before)
        if cause is not None:
            act = rate_act(facts, cause.step)
            by = "" if act is None else f", by {act.words}"
            words = f"; it has diverged, after {cause.sentence}{by}"
            fix = _START_AGAIN.capitalize() if act is not None else _FIND_WHO + _START_AGAIN
            return words, fix.format(rate=figure(cause.before, 3)), figures
        return "; it has diverged: it grew before that", steadier(before), figures
    return "; it was as usual up to the step before", _FIND_FIRST, figures


_ONE_BATCH = (
    "Look at the batch of that step: other data, another scale or another order of channels than"
    " the rest."
)
_FIND_WHO = "Find who sets that rate (a thread, a callback, a schedule with a wrong factor), and "
_START_AGAIN = "start again with {rate} from a checkpoint of before that."
_FIND_FIRST = (
    "Restart from the last checkpoint before that, and have `probing PID arm nan` name the first"
    " module, or the batch, whose values are not finite."
)
_FROM_START = (
    "If the first step was so already, look at its batch, and at log, sqrt and divisions in model"
    " and loss: started again with torch.autograd.set_detect_anomaly(True), torch names the first"
    " operation whose gradient is NaN."
)
_IGNORED_FIX = (
    "Leave out batches in which all labels are ignored, or divide by max(1, labels that count)."
)


def ignored_labels(facts: Facts) -> tuple[str, ...]:
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
    steps = _with_losses(newest_training(facts).settled())
    losses = losses_of(steps)
    if len(losses) < FEW_STEPS or since_of(facts.rows(SINCE)) is not None:
        return
    best = smooth(losses)
    place = int(np.argmin(best))
    now = float(np.median(losses[-10:]))
    first = float(losses[:20].max())
    if place > len(losses) - 20 or best[place] <= 0 or now < max(_DIVERGED * best[place], first):
        return
    if float(np.min(best[-FEW_STEPS:])) < 3 * best[place]:
        return  # it comes back again and again
    if any(place <= jump <= place + 15 for jump in _spikes(losses)):
        return  # it did not grow: it jumped, which `loss-spike` tells
    noise = _noise(losses[: place + 10])
    if now - best[place] < _SPIKE * noise:
        return
    is_policy = acts(facts, steps) or _stands(losses[place:])
    yield Sign(
        certainty="possible" if is_policy else "likely",
        summary=f"The loss diverges: {figure(now)} now, {figure(best[place])} at step"
        f" {steps.numbers[place]}",
        since_step=steps.numbers[place],
        weight=0.8,
        evidence=(*rate_words(steps), *((_POLICY,) if is_policy else ())),
        fix=steadier(steps),
    )


def acts(facts: Facts, steps: Steps) -> bool:
    """Whether models are asked for what to do: before most steps, or now and then for many.

    What is asked now and then for as many samples as a step trains on evaluates: so it is where
    batches are cut out of one tensor, without a loader.
    """
    asked = facts.rows(_ASKED.format(first=steps.numbers[0]))
    if 2 * sum(row["step"] >= steps.numbers[-FEW_STEPS] for row in asked) > FEW_STEPS:
        return True
    given = steps.column("samples") / np.maximum(steps.column("micro_batches", missing=1.0), 1.0)
    known = given[np.isfinite(given)]
    most = _FEWER * float(np.median(known)) if len(known) else math.inf
    fewer = [row for row in asked if row["samples"] is None or row["samples"] < most]
    return len(fewer) >= _OFTEN


def _stands(losses: Floats) -> bool:
    """Whether a loss that has grown does not grow any more, in the last quarter."""
    half = max(1, len(losses) // 8)
    return float(np.median(losses[-half:])) < _STANDS * float(np.median(losses[-2 * half : -half]))


def _spike(facts: Facts) -> Iterator[Sign]:
    """One step's loss stands far above those around it."""
    steps = newest_training(facts).settled()
    losses = losses_of(steps)
    if len(losses) < FEW_STEPS or len(losses) != len(steps) or losses.min() < 0:
        return
    spikes = {at: not begins_anew(facts, steps, at) for at in _spikes(losses)}
    if not 1 <= len(spikes) <= _MOST_SPIKES:
        return
    place = max(spikes, key=lambda at: (spikes[at], losses[at]))
    usual = float(np.median(losses[max(0, place - 30) : place]))
    row = steps.rows[place]
    rate = jump_at(steps, place)
    after = losses[place + 1 : place + 4]
    back = len(after) < 3 or float(np.median(after)) < usual + 0.3 * (losses[place] - usual)
    half = usual + 0.5 * (losses[place] - usual)
    last, first = float(np.median(losses[-10:])), float(np.median(losses[:10]))
    is_lost = usual < 0.2 * first < 0.5 * first < last  # what had been learned is gone
    stays = len(losses) - place > _STAYED and (last > half or is_lost)
    high = (losses[place] - usual) / _noise(losses[max(0, place - 30) : place])
    is_high = high > _SURE_SPIKE and losses[place] > _SURE_RATIO * usual
    # One sample that a model which has learned the rest gets wrong looks so in a healthy training.
    is_high &= stays or losses[place] > 0.5 * first
    is_high &= not ((back and steps.numbers[place] < _UNSETTLED) or is_restart(steps, place))
    is_high &= spikes[place]
    yield Sign(
        certainty="likely" if is_high and (back or rate or stays) else "possible",
        summary=f"The loss jumps at step {row['step']}: {figure(losses[place])}, and"
        f" {figure(usual)} before"
        + (", and has not come back since" if stays else "" if back else ", and falls again slowly")
        + (f". The learning rate was multiplied by {figure(rate, 3)} there" if rate else "")
        + ("" if spikes[place] else ". Another optimizer makes the steps since then"),
        since_step=row["step"],
        evidence=(
            f"{high:.0f} standard deviations above the 30 steps before",
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


def _too_good(facts: Facts) -> Iterator[Sign]:
    """A language model's loss is next to nothing within few steps."""
    steps = _with_losses(facts.steps)
    losses = losses_of(steps)
    tokens = steps.column("tokens")
    if not steps.begins_at_start or len(losses) < 20 or np.isnan(tokens).all():
        return
    low = np.flatnonzero(smooth(losses) < _TOO_GOOD)
    if not len(low) or low[0] > 1000 or losses[0] < 20 * _TOO_GOOD:
        return
    answer = _labels(facts)
    if answer is None or answer.shift != "equal":
        return
    yield Sign(
        certainty="possible",
        summary=f"The loss of this language model is {figure(losses[-1], 2)} after"
        f" {steps.numbers[-1]} steps: the labels of the next batch are its own tokens, not"
        " shifted, so that it sees what it has to predict, unless the script or the model shifts"
        " them later, as models of transformers do, and few samples are learned by heart",
        since_step=steps.numbers[int(low[0])],
        evidence=(f"it was {figure(losses[0], 3)} in the first step",),
        weight=0.9,
    )


def _with_losses(steps: Steps) -> Steps:
    """Those that have a finite loss on record: the places in `losses_of` are theirs."""
    return Steps(
        [row for row in steps.rows if row["loss"] is not None and math.isfinite(row["loss"])]
    )


def losses_of(steps: Steps) -> Floats:
    """The finite losses on record."""
    values = steps.column("loss")
    return values[np.isfinite(values)]


def smooth(values: Floats, width: int = 10) -> Floats:
    """Running medians of the last `width` values each; of fewer where fewer are before."""
    width = min(width, len(values))
    return np.array(
        [np.median(values[max(0, at - width + 1) : at + 1]) for at in range(len(values))]
    )


def _noise(values: Floats) -> float:
    """A robust standard deviation, never 0."""
    middle = np.median(values)
    return max(_SIGMA * float(np.median(np.abs(values - middle))), 0.02 * abs(float(middle)), 1e-12)


def _norm_words(steps: Steps, place: int) -> tuple[str, ...]:
    norm = steps.rows[place]["grad_norm"]
    usual = middle_of(steps.column("grad_norm")[max(0, place - 30) : place])
    if norm is None or not math.isfinite(usual):
        return ()
    return (
        f"the norm of the gradients was {figure(norm, 3)} there, and {figure(usual, 3)} before",
    )


LOSS_QUERY = (
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
        " such step, and whether loss or gradients grew before it. Or `loss` of"
        " python.micro_batches: in the step in progress, as many in a row as three steps have.",
        certainty="certain",
        gravity=88,
        fix=_FIND_FIRST,
        source="https://pytorch.org/docs/stable/notes/numerical_accuracy.html",
        next="probing ENDPOINT arm nan --steps 3",
        asks=(SINCE,),
        look=or_by_file(_not_finite),
    ),
    Rule(
        name="diverging",
        group="numbers",
        subject="loss",
        symptom="The loss grows.",
        evidence="`loss` of python.steps: ten times its best running median, 8 robust standard"
        " deviations above it, and above what it was at first. Only possible where it grows no"
        " more, or where models are asked without gradients before many steps, as in reinforcement"
        " learning.",
        certainty="likely",
        gravity=80,
        fix=STEADIER,
        next=LOSS_QUERY,
        asks=(TRAINED,),
        look=_diverging,
    ),
    Rule(
        name="loss-spike",
        group="numbers",
        subject="loss",
        symptom="The loss jumps in one step.",
        evidence="`loss` of python.steps: twice the median of the 30 steps before, 8 robust"
        " standard deviations and a seventh of the first losses above it; no more than three times"
        " in the record. Only possible below four times and 15 deviations, below half of the first"
        " losses, and where it falls again slowly (new data), or another optimizer makes the steps"
        " since then.",
        certainty="likely",
        gravity=62,
        fix="Look at what changed there: data, learning rate, precision.",
        next=LOSS_QUERY,
        asks=(TRAINED,),
        look=_spike,
    ),
    Rule(
        name="loss-too-good",
        group="numbers",
        subject="loss",
        symptom="A language model predicts perfectly within some steps.",
        evidence=f"`loss` below {_TOO_GOOD} within 1,000 steps, where `tokens` are counted, and the"
        " labels of a batch are its tokens and not those that follow. The script or the model may"
        " shift them later.",
        certainty="possible",
        gravity=64,
        fix="Shift the labels by one position: logits[:, :-1] against tokens[:, 1:].",
        next="probing ENDPOINT labels",
        look=_too_good,
    ),
)
