"""The table that says who refers to storages that somebody has asked about.

Rules of this file: see the package. Shows the last answer, and is empty before the first.
"""

from __future__ import annotations

from .leaks import HOLDER_COLUMNS
from .records import Table, count, size, text

REFERRERS = Table(
    name="referrers",
    kind="live",
    doc="Who refers to the storages that `memory --referrers` asked about last: one row per"
    " tensor over them, with the nearest named reference. Looked for at the ends of steps.",
    columns=(
        count("address", "Where the storage begins, as in python.tensors."),
        text("device", "Where it lies; NULL of one that is gone."),
        size("bytes", "What is there; NULL of a storage that is gone."),
        count("tensor_id", "The `id()` of the tensor over it; NULL where Python has none."),
        *HOLDER_COLUMNS,
    ),
)
