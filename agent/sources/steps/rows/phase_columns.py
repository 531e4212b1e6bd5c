"""The columns of phases in a row of a step or of a micro-batch.

Rules of this file: names and places only.
"""

from __future__ import annotations

from collections.abc import Iterable

from .....ring.writer import RingWriter
from ..phases import PHASES


def columns_of(ring: RingWriter, phases: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The numbers of phases, each with the place of its column, for `Phases.fill_seconds`."""
    return tuple((number, ring.places_of(f"{PHASES[number]}_s")[0]) for number in phases)
