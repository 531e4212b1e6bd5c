"""A rule about the script's own code, between the phases of a step or in a module's forward.

Rules of this file: looks from outside of the process, which is not paused. What has gradients takes
about as long on its way back as in the forward pass: where no such time is on record, most of the
forward computed what needs none, and what is the same in each step is computed anew in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...facts import Facts, Steps, percent
from ...findings import Rule, Sign
from ...hot_lines import HotLine
from ..device import explains
from ..shares import MODULES
from ..speed import MOST, OWN_PHASES, hot_lines_of, in_words
from .of_machine import processor_share
from .waiting_calls import BESIDE, FILLED, MORE_ITEMS, QUEUED, SENT, waits_for, what_senders_do

_SHOWN = 0.01
_NO_PAUSE = "If the pause is meant, nothing is wrong; else let it wait for what it waits for."
_FIXES = {
    **dict.fromkeys((QUEUED, FILLED, SENT), MORE_ITEMS),
    BESIDE: "Have that done before it is needed, a step ahead.",
}
_BACK = 1 / 3
"""What has gradients takes as long again on its way back, or twice as long."""
_CALLS = 1.5
"""Forward passes for each backward pass: what is called more often also samples, or evaluates."""
_ONCE = (
    "If it gives the same in each step, compute it once and keep it (register_buffer); what only"
    " the batch tells can be computed by the loader's workers."
)


def _own_code(facts: Facts) -> Iterator[Sign]:
    """Code of the script between the phases takes most of each step."""
    now = facts.now()
    shares = now.shares()
    share = sum(shares[phase] for phase in OWN_PHASES)
    gc_share = now.seconds("gc") / now.total_s
    if share - gc_share < MOST or explains(facts, now):
        yield from _in_forward(facts, now)
        return
    waits = processor_share(now) < 0.5 and not facts.crowd
    lines = [line for line in hot_lines_of(facts) if line.is_outside][:3]
    parts = {p: round(100 * shares[p]) for p in OWN_PHASES if shares[p] >= _SHOWN}
    text = f"{sum(parts.values())} % of each step"  # as the parts are shown
    sleeps = bool(lines) and lines[0].sleeps
    whom = waits_for(lines[0]) if lines and not sleeps else ""
    where = f", most at {lines[0].place} in {lines[0].func}" if lines else ""
    told = f"{text} is code of the script outside of the model and the optimizer{where}"
    if sleeps or whom:
        does = f"training waits for {whom}" if whom else "script sleeps"
        at = f"{lines[0].place} in {lines[0].func}"
        told = f"The {does} at {at}: {text} is outside of the model and the optimizer"
    yield Sign(
        certainty="possible",
        summary=told + (": it mostly waits" if waits and not (sleeps or whom) else ""),
        evidence=(
            *(f"{p}_s: {part} %" for p, part in parts.items()),
            *in_words(lines),
            *what_senders_do(facts, whom),
        ),
        weight=share,
        fix=_NO_PAUSE if sleeps else _FIXES.get(whom, ""),
    )


def _in_forward(facts: Facts, now: Steps) -> Iterator[Sign]:
    """Code of a module's forward, which no backward pass goes through, takes most of each step."""
    shares = now.shares()
    forward, backward = shares["forward"], shares["backward"]
    if forward < MOST or not 0 < backward <= _BACK * forward:
        return
    if not np.isnan(now.column("device_s")).all():
        return  # the time of a device is not that of the lines that wait for it
    by_name: dict[str, list[HotLine]] = {}
    for line in facts.hot_lines():
        if line.forward:
            by_name.setdefault(line.forward, []).append(line)
    name = max(by_name, key=lambda one: _share(by_name[one]), default="")
    lines = by_name.get(name, [])
    if _share(lines) < MOST or not _is_trained_once(facts, now, name):
        return
    yield Sign(
        certainty="possible",
        summary=f"{percent(_share(lines))} of the time is own code of {name}, outside of its"
        f" submodules, most at {lines[0].place} in {lines[0].func}; hardly any of it has gradients:"
        f" the backward passes take {percent(backward)}",
        evidence=(
            f"forward_s: {percent(forward)}, backward_s: {percent(backward)}",
            *in_words(lines[:2]),
        ),
        weight=_share(lines),
        fix=_ONCE,
    )


def _share(lines: list[HotLine]) -> float:
    return sum(line.share for line in lines)


def _is_trained_once(facts: Facts, now: Steps, name: str) -> bool:
    """Whether modules with a forward of that name are trained, and called for that alone."""
    rows = facts.rows(MODULES.format(first=now.numbers[0], last=now.numbers[-1]))
    own = [row for row in rows if [row["class"], "forward"] == name.split(".")[-2:]] or rows
    models = {row["model"] for row in own}
    roots = [row for row in rows if row["depth"] == 0 and row["model"] in models]
    calls = sum(row["calls"] / row["steps"] for row in roots)
    if calls > _CALLS * np.fmax(1.0, now.column("micro_batches", missing=1.0)).mean():
        return False
    places = [(r["model"], f"{r['module']}." if r["depth"] else "") for r in own]
    return any(_is_trained(row, places) for row in facts.live("parameters"))


def _is_trained(parameter: dict[str, Any], places: list[tuple[str, str]]) -> bool:
    """Whether a parameter is in one of some modules, and an optimizer trains it."""
    is_inside = any(
        parameter["model"] == model and parameter["parameter"].startswith(prefix)
        for model, prefix in places
    )
    return bool(is_inside and parameter["trainable"] and parameter["optimizers"])


RULES = (
    Rule(
        name="own-code",
        group="slow",
        subject="speed",
        symptom="The model is small beside what surrounds it.",
        evidence=(
            "`other_s`, `loss_s`, `gradients_s` and `to_device_s` of python.steps: half of the"
            " time, and what the commonest line waits for. Or half of two seconds' samples are own"
            " code of the forward of a module that is trained, once for each backward pass, where"
            " these take a third of the forward passes or less, on a processor. It may be meant: an"
            " environment that is played, a deliberate pause."
        ),
        certainty="possible",
        gravity=36,
        fix="Do it less often, such as in every 100th step, or do less in it. What the training"
        " needs no result of can be done in another process meanwhile.",
        next="probing ENDPOINT profile --sampling 10",
        look=_own_code,
        cost_s=2.0,
    ),
)
