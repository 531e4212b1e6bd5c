"""Rules about a training that learns nothing, or has lost what it had learned.

Rules of this file: pure functions of `Facts`; each is named by one `Rule` at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .....units import figure
from ...facts import WINDOW, Facts
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from ...series import Floats
from .losses import LOSS_QUERY, losses_of, smooth
from .not_finite.unended import Lost, lost_in_progress, passes_in_progress
from .rates import (
    FEW_STEPS,
    TRAINED,
    first_of_newest,
    newest_training,
    rate_words,
    tiny_rate,
)

_NO_STEPS = 64
_FAR_MORE = 8
_PASSES_AND_STEPS = (
    "SELECT (SELECT count(*) FROM python.micro_batches WHERE backward_s IS NOT NULL) AS passes,"
    " (SELECT count(*) FROM python.steps WHERE duration IS NOT NULL) AS steps,"
    " (SELECT count(*) FROM python.optimizer_steps) AS optimizer_steps"
)
_MODES = (
    "SELECT bool_or(training) AS trains FROM python.torch_trace"
    " WHERE step >= {step} AND stage = 'forward' AND depth = 0"
)
_GRADIENTS_ONLY = (
    "so it is where gradients are only looked at: an attack on the model, EWC, influence, Grad-CAM"
)
_LEAST = 2 * WINDOW
_PIECE = 20
_LOSSES = (
    "SELECT min(step) AS first, count(*) AS steps, count(x) AS losses, median(x) AS loss,"  # noqa: S608 - a number of ours
    " min(x) AS least, stddev_pop(x) AS spread FROM (SELECT step, CASE WHEN isfinite(loss) THEN"
    f" loss END AS x FROM python.steps WHERE duration IS NOT NULL) GROUP BY step // {_PIECE}"
    " ORDER BY 1"
)
"""All that are on record, which are more than the doctor looks at one by one."""
_BEGAN = 0.9
"""Of the first losses: from there on it is where it began,"""
_FALLEN = 0.85
"""and below this it has fallen."""
_ENTANGLED = 1.5
"""Optimizer steps per step: the losses of a generator and its critic depend on each other."""
_WHAT_CHANGED = (
    "Look at what changes between steps {lowest} and {since}: labels that no longer belong to their"
    " inputs, as columns that a new epoch shuffles apart, weights that are replaced, harder data."
)
BY_RATE = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Lion")
"""They divide a gradient by its own size, so that a weight moves by about the rate in a step."""
_HIGH = 0.05
"""As large as a weight of a layer with 400 inputs is at first (1/sqrt(inputs) at most); what is
customary is 1e-2 and less."""
_NOT_LEARNED, _LOST = 0.9, 1.5
_PART = 0.15
"""Of what the loss was at first: near its floor a loss is all noise."""
_MIDDLE = 20


def _flat(facts: Facts) -> Iterator[Sign]:
    """The loss is where it was at the start."""
    begin = first_of_newest(facts)
    pieces = [piece for piece in facts.rows(_LOSSES) if piece["first"] >= begin]
    steps = sum(piece["steps"] for piece in pieces)
    if steps < _LEAST or sum(piece["losses"] for piece in pieces) < steps:
        return
    if pieces[0]["first"] > (begin + _PIECE if begin else 1):
        raise NotLookedAt("the start of the training is not on record any more")
    losses = np.array([piece["loss"] for piece in pieces])
    before, now = float(losses[0]), float(np.median(losses[-WINDOW // _PIECE :]))
    if before <= 0 or not _BEGAN * before <= now <= 2 * before:
        return
    smoothed = (losses[1:] + losses[:-1]) / 2
    if smoothed[1:].min() < _FALLEN * before:
        yield from _lost(facts, pieces, smoothed / before)
        return
    has_fallen = "hardly" if now < before - pieces[0]["spread"] else "not"
    yield Sign(
        certainty="possible",
        summary=f"The loss has {has_fallen} fallen in {steps:,} steps: {figure(before)} in the"
        f" first, {figure(now)} now{tiny_rate(newest_training(facts))}",
        since_step=pieces[0]["first"],
        evidence=rate_words(facts.steps),
        weight=0.5,
    )


def _lost(facts: Facts, pieces: Sequence[Mapping[str, Any]], parts: Floats) -> Iterator[Sign]:
    """The loss had fallen, has risen to where it began, and stays there.

    Args:
        parts: The losses of each piece and the next one, of what they were at first.
    """
    low = int(np.argmin(parts))
    risen = low + np.flatnonzero(parts[low:] >= _BEGAN)
    if not len(risen) or _PIECE * (len(parts) - risen[0]) < _LEAST:
        return
    if parts[risen[0] :].min() < _FALLEN or min(piece["least"] for piece in pieces) <= 0:
        return
    optimizer_steps = facts.steps.column("optimizer_steps", missing=1.0)
    if optimizer_steps.mean() > _ENTANGLED:
        return
    lowest, since = (pieces[int(at) + 1]["first"] for at in (low, risen[0]))
    before, now = pieces[0]["loss"], pieces[-1]["loss"]
    yield Sign(
        certainty="possible",
        summary=f"The loss is back where it began: {figure(before)} in the first steps,"
        f" {figure(parts[low] * before)} near step {lowest:,}, {figure(now)} now and since about"
        f" step {since:,}",
        since_step=since,
        evidence=rate_words(facts.steps),
        weight=0.6,
        fix=_WHAT_CHANGED.format(lowest=lowest, since=since),
    )


def _too_high(facts: Facts) -> Iterator[Sign]:
    """The rate is far above what is customary, and what had been learned is gone, or nothing is."""
    steps = newest_training(facts)
    if len(steps) < 2 * FEW_STEPS or steps.rows[-1]["optimizer"] not in BY_RATE:
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


def _never_steps(facts: Facts) -> Iterator[Sign]:
    """Backward passes are made, and no optimizer steps."""
    if len(facts.steps):  # also steps that a script makes by hand end
        yield from _steps_no_more(facts)
        return
    found = facts.rows(_PASSES_AND_STEPS)[0]  # of one moment: the first step may come any time
    number = found["passes"]
    if number < _NO_STEPS or found["steps"] or found["optimizer_steps"]:
        return
    scaled = facts.steps.open and facts.steps.open["amp_scale"]
    yield Sign(
        certainty="likely",
        summary=f"{number} backward passes have been made, and no optimizer has stepped: nothing is"
        " learned, or the script updates its parameters by itself, which was not seen",
        since_step=0,
        evidence=(
            "no step of an optimizer is on record",
            *(("a scaler is in use",) if scaled else ()),
        ),
        weight=1.0,
    )


def _steps_no_more(facts: Facts) -> Iterator[Sign]:
    """Backward passes are made, and no optimizer steps any more."""
    open_step = facts.steps.open
    if open_step is None or not facts.is_alive:
        return
    row = passes_in_progress(facts)
    most = float(np.nanmax(facts.steps.column("micro_batches", missing=1.0)))
    number = row["passes"] if row else 0
    if number < _NO_STEPS or number < _FAR_MORE * most:
        return
    lost = lost_in_progress(facts)
    if lost is not None:
        yield _for_its_loss(facts.steps.numbers[-1], number, lost)
        return
    evaluates = _evaluates(facts, open_step["step"])
    yield Sign(
        certainty="possible" if evaluates else "likely",
        summary=f"No optimizer has stepped since step {facts.steps.numbers[-1]}, though {number}"
        " backward passes have been made"
        + (", in evaluation mode" if evaluates else ": nothing is learned any more"),
        since_step=open_step["step"],
        evidence=(
            f"no step before had more than {most:.0f} backward passes",
            *((_GRADIENTS_ONLY,) if evaluates else ()),
        ),
        weight=1.0,
        fix="Nothing, if these passes are not there to train." if evaluates else "",
    )


def _for_its_loss(last: int, number: int, lost: Lost) -> Sign:
    """No optimizer steps because there is no loss to learn from."""
    who = (
        "a gradient scaler leaves out such steps" if lost.is_scaled else "scripts may leave it out"
    )
    return Sign(
        certainty="likely",
        summary=f"No optimizer has stepped since step {last}, though {number} backward passes have"
        f" been made, because the loss is not finite: {who}",
        since_step=lost.since.step,
        evidence=(f"none of the last {lost.losses:,} losses is known to be finite",),
        weight=1.0,
        fix="Find where the loss that is not finite comes from: nothing else keeps the optimizer.",
        caused_by="loss-not-finite",
    )


def _evaluates(facts: Facts, step: int) -> bool:
    """Whether all models that are called since a step began are in evaluation mode."""
    found = facts.rows(_MODES.format(step=step))
    return bool(found) and found[0]["trains"] is False


RULES = (
    Rule(
        name="loss-flat",
        group="numbers",
        subject="loss",
        symptom="Nothing is learned, from the first step on or any more.",
        evidence=(
            f"`loss` of python.steps from the start, {_LEAST} steps or more: its running median"
            " was never a seventh below that of the first 20 steps, or has been back for"
            f" {_LEAST} steps. Not judged once the first steps are not on record any more."
        ),
        certainty="possible",
        gravity=50,
        fix="Check that labels belong to their inputs (look at a batch), and that the rate is not"
        " far too small; a model must be able to learn one batch by heart.",
        source="https://karpathy.github.io/2019/04/25/recipe/",
        next=LOSS_QUERY,
        look=_flat,
        asks=(_LOSSES, TRAINED),
    ),
    Rule(
        name="rate-too-high",
        group="numbers",
        subject="learning rate",
        symptom="The loss falls at first or not at all, and is then as high as at the start.",
        evidence=f"`lr` of python.steps {_HIGH} or more under an optimizer that divides gradients"
        f" by their size ({', '.join(BY_RATE)}), and `loss` within a tenth of that of the first"
        f" steps, or {_LOST} times its least.",
        certainty="likely",
        gravity=81,
        fix="Lower it to 1e-3 or less, and look at what multiplies it: a warm-up or schedule with a"
        " wrong exponent or factor, a scaling by batch size or ranks, a rate meant for SGD.",
        source="https://arxiv.org/abs/1412.6980",
        next=LOSS_QUERY,
        asks=(TRAINED,),
        look=_too_high,
    ),
    Rule(
        name="never-steps",
        group="numbers",
        subject="optimizer",
        symptom="The loss does not fall at all.",
        evidence=(
            f"python.micro_batches: {_NO_STEPS} backward passes, and no step of an optimizer on"
            f" record, or {_FAR_MORE} times as many since the last one as any step had. Only"
            " possible where all calls of models since the last one were in evaluation mode."
        ),
        certainty="likely",
        gravity=78,
        fix="Look at the condition under which optimizer.step() is called. A script that updates"
        " its parameters by itself can call probing.step() behind that.",
        next='probing ENDPOINT query "SELECT count(*) FROM python.micro_batches"',
        look=_never_steps,
    ),
)
