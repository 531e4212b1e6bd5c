"""What to do about memory: rules over figures, while there still is some and once there is none.

Rules of this package: pure functions; no I/O. All thresholds stand in it by name. Each piece of
advice carries the figures that it follows from; nothing is advised for what was not measured.
"""

from __future__ import annotations

from .batch import batch_pairs
from .record import Advice
from .seen import Shortage, Trend
from .shortage import advise
from .usage import Usage, advise_on_usage

__all__ = [
    "Advice",
    "Shortage",
    "Trend",
    "Usage",
    "advise",
    "advise_on_usage",
    "batch_pairs",
]
