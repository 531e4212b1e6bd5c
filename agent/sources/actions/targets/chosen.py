"""The optimizers that an action acts on, and what is said of the others.

Rules of this file: names and numbers only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .....errors import ActRefused
from ...torch_types import Optimizer

_SHOWN = 12


class Chosen(NamedTuple):
    """The optimizers that an action acts on.

    Attributes:
        notes: Which those are, and which it leaves alone, where there is more than one.
    """

    optimizers: list[Any]
    notes: tuple[str, ...]


def chosen_of(
    optimizers: list[Optimizer], names: list[str], idle: list[str], wanted: str | None
) -> Chosen:
    """All of them, or the one that is named.

    Args:
        names: What they are called, in the same order.
        idle: What others are called, that have not stepped.
        wanted: A name, or a number as `python.optimizers` has it; None for all.

    Raises:
        ActRefused: None goes by that name or number.
    """
    places = list(range(len(optimizers)))
    if wanted is not None:
        places = [place for place in places if wanted in {names[place], str(place)}]
    if not places:
        there = ", ".join(f"{name} ({place})" for place, name in enumerate(names))
        raise ActRefused(f"no optimizer is called {wanted}; there are {there}")
    others = [name for place, name in enumerate(names) if place not in places]
    notes: tuple[str, ...] = ()
    if len(optimizers) > 1:
        notes = (f"it acts on {listed([names[place] for place in places])}",)
    if others:
        notes += (f"left alone: {listed(others)}",)
    if idle:
        notes += (f"left alone, since it has not stepped: {listed(idle)}",)
    return Chosen([optimizers[place] for place in places], notes)


def listed(names: list[str]) -> str:
    """Names in a sentence."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
