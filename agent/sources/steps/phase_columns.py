"""The columns of phases in a row of a step or of a micro-batch.

Rules of this file: used by the training thread only.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....ring.writer import RingWriter
from .phases import PHASES

_NS = 1e-9


class PhaseColumns:
    """Where a ring has its columns of phases."""

    def __init__(self, ring: RingWriter, phases: Iterable[int]) -> None:
        """Find them.

        Args:
            phases: The numbers of those that it has.
        """
        self._places = [(number, ring.places_of(f"{PHASES[number]}_s")[0]) for number in phases]

    def fill(self, closing: list[object], spent_ns: list[int]) -> None:
        """Fill in those that there were; NULL stays for the others."""
        for number, place in self._places:
            if spent_ns[number]:
                closing[place] = spent_ns[number] * _NS
