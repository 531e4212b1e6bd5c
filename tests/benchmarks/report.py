"""Measures as text: a table for the terminal, one for a page, and JSON.

Rules of this file: pure; it turns measures into text and prints nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from .measures import Measure

Results = Mapping[str, Sequence[Measure]]
"""Measures by the benchmark's name."""

_HEADINGS = ("what", "measured: median (min .. max)", "must", "aim", "verdict")


def plain(results: Results) -> str:
    """The table for a terminal."""
    rows = [_HEADINGS, *_rows(results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *_notes(results)])


def markdown(results: Results, machine: Mapping[str, str]) -> str:
    """The machine and the table, to be pasted into a page."""
    facts = [f"- {name}: {value}" for name, value in machine.items()]
    rows = ["| " + " | ".join(row) + " |" for row in (_HEADINGS, *_rows(results))]
    rows.insert(1, "|---" * len(_HEADINGS) + "|")
    notes = [f"- {note}" for note in _notes(results)]
    return "\n".join([*facts, "", *rows, "", *notes]).rstrip()


def missed(results: Results) -> list[str]:
    """One sentence for each figure that missed what it must be."""
    return [
        f"missed: {name}: {m.what}: {_number(m.median)} {m.unit}, and it must be at most"
        f" {_limit(m.must, m.unit)}"
        for name, found in results.items()
        for m in found
        if m.verdict == "MISSED"
    ]


def as_json(results: Results, machine: Mapping[str, str]) -> str:
    """Everything, every value included."""
    measures = [
        {"benchmark": name, **dataclasses.asdict(m), "median": m.median, "verdict": m.verdict}
        for name, found in results.items()
        for m in found
    ]
    return json.dumps({"machine": dict(machine), "measures": measures}, indent=2)


def _rows(results: Results) -> list[tuple[str, ...]]:
    """The cells of the table."""
    return [
        (m.what, _measured(m), _limit(m.must, m.unit), _limit(m.aim, m.unit), m.verdict)
        for measures in results.values()
        for m in measures
    ]


def _notes(results: Results) -> list[str]:
    """What is to be said beside the table."""
    return [f"{m.what}: {m.note}" for found in results.values() for m in found if m.note]


def _measured(measure: Measure) -> str:
    """A measure's values in one cell."""
    low, high = min(measure.values), max(measure.values)
    text = f"{_number(measure.median)} {measure.unit}".rstrip()
    if low != high:
        text += f" ({_number(low)} .. {_number(high)})"
    if measure.interval:
        low, high = measure.interval
        text += f", 95 % of median {_number(low)} .. {_number(high)}"
    return text


def _limit(limit: float | None, unit: str) -> str:
    """A limit, or nothing."""
    return "" if limit is None else f"{limit:g} {unit}".rstrip()


def _number(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
