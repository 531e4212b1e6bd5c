"""What checks have found, and how it is told.

Rules of this file: pure; no torch, and nothing is printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

HOLDS, MISSED, FAILED, SEEN, LEFT_OUT = "holds", "**MISSED**", "**FAILED**", "seen", "not here"
_HEADINGS = ("check", "what", "found", "must", "verdict")
_LONGEST = 120
_FAKE = "On a made-up CUDA: this shows that the checks run, and nothing of a device."


class Finding(NamedTuple):
    """One row of the table.

    Attributes:
        must: What is asked of it, in words; empty for what is only told.
    """

    what: str
    found: str
    must: str
    verdict: str


def expect(what: str, found: object, *, must: object) -> Finding:
    """Something that has to be just so."""
    verdict = HOLDS if found == must else MISSED
    return Finding(what, str(found), str(must), verdict)


def limit(what: str, found: float, *, most: float, unit: str = "") -> Finding:
    """Something that must not be more than so much."""
    verdict = HOLDS if found <= most else MISSED
    return Finding(what, f"{found:.4g} {unit}".strip(), f"at most {most:g} {unit}".strip(), verdict)


def seen(what: str, found: object) -> Finding:
    """Something that is only told."""
    return Finding(what, str(found)[:_LONGEST], "", SEEN)


def left_out(what: str, why: str) -> Finding:
    """Something that cannot be shown here."""
    return Finding(what, why, "", LEFT_OUT)


def encode_finding(finding: Finding) -> str:
    """As a line of a check's output."""
    return json.dumps({"finding": finding})


def decode_findings(lines: Iterable[str]) -> list[Finding]:
    """The findings among the lines of a check's output."""
    told = (line for line in lines if line.startswith('{"finding": '))
    return [Finding(*json.loads(line)["finding"]) for line in told]


Results = Mapping[str, Sequence[Finding]]
"""Findings by the name of their check."""


def is_good(results: Results) -> bool:
    """Whether nothing was missed and nothing has failed."""
    return all(f.verdict not in {MISSED, FAILED} for found in results.values() for f in found)


def plain(results: Results) -> str:
    """The table for a terminal."""
    rows = [_HEADINGS, *_rows(results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(results: Results, machine: Mapping[str, str], *, is_fake: bool, seconds: float) -> str:
    """The section that docs/benchmarks.md takes."""
    facts = "; ".join(f"{name}: {value}" for name, value in machine.items())
    rows = ["| " + " | ".join(row) + " |" for row in (_HEADINGS, *_rows(results))]
    rows.insert(1, "|" + " --- |" * len(_HEADINGS))
    head = [_FAKE, ""] if is_fake else []
    return "\n".join([*head, f"`scripts/gpu`, {seconds:.0f} s. {facts}.", "", *rows, ""])


def _rows(results: Results) -> list[tuple[str, ...]]:
    """The cells of the table."""
    return [
        (name if place == 0 else "", *finding)
        for name, found in results.items()
        for place, finding in enumerate(found)
    ]
