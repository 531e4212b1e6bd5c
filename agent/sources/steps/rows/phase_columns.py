"""The columns of phases in a row of a step or of a micro-batch.

Rules of this file: used by the training thread only.
"""

from __future__ import annotations

from collections.abc import Iterable

from .....ring.writer import RingWriter
from ..phases import PHASES, Phases


class PhaseColumns:
    """Where a ring has its columns of phases."""

    def __init__(self, ring: RingWriter, phases: Iterable[int]) -> None:
        """Find them.

        Args:
            phases: The numbers of those that it has.
        """
        places = [(number, ring.places_of(f"{PHASES[number]}_s")[0]) for number in phases]
        self._places = tuple(places)

    def fill(
        self, closing: list[object], phases: Phases, before_ns: list[int] | None = None
    ) -> None:
        """Fill in those that there were; NULL stays for the others.

        Args:
            before_ns: What had been spent on each before that which the row is of.
        """
        phases.fill_seconds(closing, self._places, before_ns)
