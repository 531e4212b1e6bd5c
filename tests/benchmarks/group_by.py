"""From rings of several sizes to the answer of a group-by, and the memory that takes."""

from __future__ import annotations

from collections.abc import Iterator

from .measures import Measure, rounds_for, scaled
from .processes import run_program, temporary_home

_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_JUDGED = {1_000_000: (60, 17), 10_000_000: (400, 150)}
"""What it must take at most, and what DuckDB takes for rows that it holds itself, in ms."""


def measure(effort: float) -> Iterator[Measure]:
    """Each size in a process of its own, which makes the ring, and in another, which asks it."""
    for rows in _SIZES:
        with temporary_home() as home:
            folder = run_program("make_ring", home, rows=rows)
            found = run_program("ask_ring", home, folder=folder, rounds=rounds_for(5, effort))
        peak, before = (kib * 1024e-6 for kib in (found["peak_kib"], found["before_kib"]))
        must, aim = _JUDGED.get(rows, (None, None))
        yield Measure(
            what=f"group-by over {rows:,} rows",
            unit="ms",
            values=scaled(found["query"], 1e3),
            must=must,
            aim=aim,
            note=f"peak resident {peak:,.0f} MB, {before:,.0f} MB of it before the first query",
        )
        yield Measure(
            what=f"reading the bytes of {rows:,} rows", unit="ms", values=scaled(found["read"], 1e3)
        )
