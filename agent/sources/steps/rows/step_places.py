"""What a step's end fills in, and where; the columns of phases in a row of a step or micro-batch.

Rules of this file: names and places only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .....messages.frozen import dataclass
from .....ring.format import NULL_NAME
from .....ring.writer import RingWriter
from ..phases import PHASES


def columns_of(ring: RingWriter, phases: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The numbers of phases, each with the place of its column, for `Phases.fill_seconds`."""
    return tuple([(number, ring.places_of(f"{PHASES[number]}_s")[0]) for number in phases])


class StepEnd(NamedTuple):
    """What is known of a step at its end.

    Attributes:
        optimizer: The number of its optimizer's class name.
        lr: The learning rate; `NULL_FLOAT` where there is none.
        model: The root module that was trained; None where none was.
        models: The number of the name of all that were.
    """

    took_ns: int
    memory_bytes: int
    optimizer: int
    lr: float
    model: Any
    models: int = NULL_NAME


@dataclass(slots=True)
class StepPlaces:
    """Where the columns of python.steps are that few steps fill in as they end."""

    tokens: int
    tokens_per_s: int
    flops: int
    mfu: int
    skipped: int
    amp_scale: int
    device_s: int
    host_bound: int
