"""Why the parameters of ranks that average their gradients are not the same.

Rules of this file: pure functions of what the ranks tell and of what differs between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....cluster.ranks.differences import OPTIMIZER, PARAMETER, Difference
from ....units import figure
from ..facts import Facts
from ..rules.numbers.gradients import listed
from .why_slow import Why

_NAMED = 4
_INTO_DDP = (
    "Wrap it, too: one DistributedDataParallel around a module that has all; else all_reduce its"
    " gradients before optimizer.step(). Load the same parameters on all ranks once."
)
_DDP = "DistributedDataParallel"
_IN_SYNC = (
    "Let the last backward pass before each optimizer step be outside of no_sync(), with its"
    " forward pass, which has to call the wrapper and not `.module`. Load a checkpoint on all"
    " ranks, or before the model is wrapped. Start again, or broadcast the parameters of rank 0."
)
_SAME_OPTIONS = (
    "Give the optimizers of all ranks the same options: what a scheduler is given, as the loss of"
    " an evaluation by ReduceLROnPlateau, has to be all_reduced first. Load the same parameters on"
    " all ranks once."
)


def why_apart(ranks: Mapping[int, Facts], differences: Sequence[Difference]) -> Why:
    """Why parameters differ that should be equal.

    Args:
        differences: What differs between the ranks.
    """
    first = next(iter(ranks.values()))
    names = [one.name for one in differences if one.kind == PARAMETER]
    outside = _outside(first, names)
    options = [one for one in differences if one.kind == OPTIMIZER]
    too = f"; {listed([one.name for one in options])} differs, too" if options else ""
    rates = "" if options else _rates_apart(ranks)
    inside = "" if outside or too or rates else _inside(first, names)
    fix = (
        _INTO_DDP if outside else _SAME_OPTIONS if options or rates else _IN_SYNC if inside else ""
    )
    return Why(
        words=outside + inside + too + rates,
        evidence=tuple(map(_values_of, options[:_NAMED])),
        fix=fix,
    )


def _rates_apart(ranks: Mapping[int, Facts]) -> str:
    """That their learning rates were not the same in some step, which they may be again by now."""
    by_step: dict[int, dict[int, float]] = {}
    for rank, facts in ranks.items():
        for row in facts.steps.rows:
            if row["lr"] is not None:
                by_step.setdefault(row["step"], {})[rank] = row["lr"]
    apart = [step for step, rates in sorted(by_step.items()) if len(set(rates.values())) > 1]
    if not apart:
        return ""
    first = by_step[apart[0]]
    told = ", ".join(f"{figure(rate, 3)} on rank {rank}" for rank, rate in first.items())
    return (
        f"; their learning rates were not the same in {len(apart)} steps, first in step {apart[0]}:"
        f" {told}"
    )


def _outside(facts: Facts, names: Sequence[str]) -> str:
    """That what differs is outside of DistributedDataParallel, where another model is inside."""
    rows = _owners(facts)
    averaged = sorted({one.name for one in rows if _DDP in one.wrappers})
    left_out = [one for one in rows if not one.wrappers and one.is_trainable]
    own = sorted(
        {one.name for one in left_out if any(name.startswith(one.heads) for name in names)}
    )
    heads = tuple(head for one in left_out for head in one.heads)
    if not averaged or not own or not all(name.startswith(heads) for name in names):
        return ""
    return (
        f", all of {listed(own)}: outside of DistributedDataParallel, in which {listed(averaged)}"
        f" is, so that nobody averages {'its' if len(own) == 1 else 'their'} gradients"
    )


def _inside(facts: Facts, names: Sequence[str]) -> str:
    """That what differs is inside of DistributedDataParallel, which has given all ranks the same.

    Gradients that it averages, and optimizers with the same options, keep them the same, but for
    what the script changes on some ranks alone.
    """
    rows = _owners(facts)
    inside = [one for one in rows if _DDP in one.wrappers]
    heads = tuple(head for one in inside for head in one.heads)
    if not inside or not (len(inside) == len(rows) or all(n.startswith(heads) for n in names)):
        return ""
    return (
        f", though inside of {_DDP}: either not all passes average their gradients, or they were"
        " changed on some ranks since it was made (as by a checkpoint loaded on rank 0 alone)"
    )


class _Owner(NamedTuple):
    """A model that has parameters, be they frozen.

    Attributes:
        name: Its class, or what the script calls it where others have that class.
        heads: How the names of its parameters may begin.
    """

    name: str
    heads: tuple[str, ...]
    wrappers: str
    is_trainable: bool


def _owners(facts: Facts) -> list[_Owner]:
    """The models of a rank."""
    rows = [row for row in facts.live("models") if row["parameters"] != 0]
    number = Counter(row["class"] for row in rows)
    found = []
    for row in rows:
        heads = (row["model"], row["class"]) if number[row["class"]] == 1 else (row["model"],)
        found.append(
            _Owner(
                name=heads[-1],
                heads=tuple(f"{head}." for head in heads),
                wrappers=row["wrappers"] or "",
                is_trainable=bool(row["trainable"]),
            )
        )
    return found


def _values_of(one: Difference) -> str:
    """What an option is, and where."""
    values = (
        f"{group.value} on rank{'s' if len(group.ranks) > 1 else ''}"
        f" {listed([str(rank) for rank in group.ranks])}"
        for group in one.groups
    )
    return f"{one.name} is {', '.join(values)}"
