"""The table that says who refers to storages that somebody has asked about.

Rules of this file: see the package. Shows the last answer, and is empty before the first.
"""

from __future__ import annotations

from .leaks import HOLDER_COLUMNS
from .records import Table, count, size, text

REFERRERS = Table(
    name="referrers",
    kind="live",
    doc="Who refers to the storages that `memory --referrers` asked about last, at the ends"
    " of steps: one row per tensor over them, with the nearest named reference.",
    columns=(
        count("address", "Where the storage begins, as in python.tensors."),
        text("device", "Where it lies."),
        size("bytes", "What is there; NULL of a storage that is gone."),
        count("tensor_id", "The `id()` of the tensor over it."),
        *HOLDER_COLUMNS,
    ),
)
