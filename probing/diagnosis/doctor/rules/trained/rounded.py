"""Updates that are less than half of what the weights' type can tell: they are rounded away.

Rules of this file: what an optimizer's step amounts to at the most is set beside the spacing of the
type at weights as large as their root mean square. What was changed in steps that were looked at
has to be less than that, too: who keeps the rest of each update, or rounds at random, changes more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .....units import figure
from ...facts import Facts, Steps, percent
from ...findings import Sign
from ...series import Floats
from ..numbers.rates import newest_training
from ..numbers.unlearned import BY_RATE

FULL_WEIGHTS = "Keep the weights in float32 and compute with torch.autocast, or raise the rate."
_HALF_UNIT = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
"""Half a unit in the last place, of the weights for which that is least: no smaller part of any
weight is told apart."""
_LEAST = 0.5
"""An update of half as much moves no weight above half of the root mean square: most of them."""
_CHANGED = 0.7
"""Of the most: rounding to nearest leaves 0.55 of it and less at such rates, in trials with Adam
and SGD; keeping what was rounded away or rounding at random makes it 0.95 and more."""
_LEAST_MOVED = 10.0
"""So many weights would have to move in a step where the rest of updates is kept: by fewer, as of
a small model late in its training, one cannot tell that it is not."""
_RISING, _FALLEN, _NEW = 20, 0.5, 30.0
_BY_GRADIENT = ("SGD",)


def rounded_away(facts: Facts, rows: Sequence[Mapping[str, Any]]) -> Iterator[Sign]:
    """Most of what is trained cannot be moved by so small a rate.

    Args:
        rows: Those of python.gradients that have a gradient, and whose change is known.
    """
    types = _types(facts)
    rates, since = _rates(newest_training(facts))
    if not types or len(rates) < 2 or rates[-1] > rates[-min(_RISING, len(rates))]:
        return  # in a warm-up it will be more
    groups = facts.live("optimizers")
    most = float(rates.max()) * _spread(groups)
    lost = []
    for row in rows:
        dtype = types.get((row["model"], row["parameter"]), types.get(None, ""))
        reach = _reach(row, row["optimizer"] or facts.steps.rows[-1]["optimizer"], groups)
        least = _LEAST * _HALF_UNIT.get(dtype, 0.0)
        is_less = row["update_ratio"] < _CHANGED * rates[-1] * reach
        if (
            most * reach < least
            and is_less
            and _moved(row, rates[-1] * reach, dtype) > _LEAST_MOVED
        ):
            lost.append((row, dtype, most * reach))
    part = sum(row["numel"] for row, _, _ in lost) / sum(row["numel"] for row in rows)
    if part >= 0.5:
        is_falling = rates[-1] < _FALLEN * most or (since is None and rates[-1] < rates[0])
        largest = max(lost, key=lambda one: one[0]["numel"])
        yield _sign(*largest, part, most, since=since, is_falling=is_falling)


def tells(facts: Facts, rows: Sequence[Mapping[str, Any]], dtype: str) -> bool:
    """Whether one would see it of parameters that have not changed if what is lost were kept."""
    rate, groups = facts.now().rows[-1]["lr"], facts.live("optimizers")
    optimizer = facts.steps.rows[-1]["optimizer"]
    reaches = [rate * _reach(row, row["optimizer"] or optimizer, groups) for row in rows]
    moved = [_moved(row, reach, dtype) for row, reach in zip(rows, reaches, strict=True)]
    return sum(moved) > _LEAST_MOVED


def _moved(row: Mapping[str, Any], reach: float, dtype: str) -> float:
    """How many weights a step would move where the rest of each update is kept.

    Args:
        reach: What part of its norm a step changes at the most.
    """
    return float(row["numel"]) * reach / (4 * _HALF_UNIT[dtype])


def _rates(steps: Steps) -> tuple[Floats, int | None]:
    """The rates since another optimizer or a new one stepped, and its first step, if on record.

    A new one is told by a rate that falls further in one step than a schedule has it.
    """
    first, rows = 0, [row for row in steps.rows if row["lr"] is not None]
    for place, (before, row) in enumerate(itertools.pairwise(rows), 1):
        is_other = before["optimizer"] != row["optimizer"]
        if is_other or before["lr"] > _NEW * row["lr"] > 0:
            first = place
    found = np.array([row["lr"] for row in rows[first:]], dtype=np.float64)
    return found, rows[first]["step"] if first or (rows and steps.begins_at_start) else None


def _types(facts: Facts) -> dict[Any, str]:
    """The types of trained parameters by names, that of all by None; none where all are full."""
    rows = [row for row in facts.live("parameters") if row["optimizers"]]
    kinds = {row["dtype"] for row in rows}
    if not kinds & _HALF_UNIT.keys():
        return {}
    found = {(row.get("model"), row.get("parameter")): row["dtype"] for row in rows}
    return {**found, **({None: kinds.pop()} if len(kinds) == 1 else {})}


def _spread(groups: Sequence[Mapping[str, Any]]) -> float:
    """How many times the rate of an optimizer's first group its largest one is, at the most."""
    rates: dict[str, list[float]] = {}
    for row in groups:
        rates.setdefault(row["name"], []).append(row["lr"] or 0.0)
    return max([1.0, *(max(own) / own[0] for own in rates.values() if own[0] > 0)])


def _reach(row: Mapping[str, Any], optimizer: str, groups: Sequence[Mapping[str, Any]]) -> float:
    """What part of a parameter's norm a step changes at the most, by a rate of 1.

    It is infinite where that is not known of the optimizer.
    """
    own = [one["momentum"] or 0.0 for one in groups if one["optimizer"] == optimizer]
    gain = 1 / max(1e-3, 1 - max(own, default=0.0))
    if optimizer in BY_RATE:
        return gain * math.sqrt(row["numel"]) / float(row["weight_norm"])
    return gain * row["norm"] / row["weight_norm"] if optimizer in _BY_GRADIENT else math.inf


def _sign(
    row: Mapping[str, Any],
    dtype: str,
    reach: float,
    part: float,
    most: float,
    *,
    since: int | None,
    is_falling: bool,
) -> Sign:
    """What is said of it.

    Args:
        row: The largest of the parameters, whose type that is.
        reach: What part of its norm a step changes at the most.
        part: What part of all that is trained is so.
    """
    size = row["weight_norm"] / math.sqrt(row["numel"])
    spacing = 2.0 ** (math.floor(math.log2(size)) + 1) * 2 * _HALF_UNIT[dtype]
    return Sign(
        certainty="possible" if is_falling else "likely",
        summary=f"Most updates are rounded away: in {percent(part)} of what is trained, weights as"
        f" large as usual are not changed in {dtype} by a rate of {figure(most, 3)}"
        + ("; it has been falling, as at the end of a schedule" if is_falling else ""),
        since_step=since,
        evidence=(
            f"weights of {row['parameter']} are {figure(size, 2)} (root mean square), where"
            f" {dtype} has steps of {figure(spacing, 2)}; the optimizer moves them by"
            f" {figure(reach * size, 2)} at the most, and less than half a step is nothing",
            f"`update_ratio` of it is {figure(row['update_ratio'], 2)} in step {row['step']}",
        ),
        weight=part,
        fix=FULL_WEIGHTS,
    )
