"""What a watch of some steps and the record before it come to.

Rules of this file: pure functions of rows.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from ...messages.frozen import InNotebooks, dataclass
from .growth import Group, PhaseChange
from .history import Row, Series, series_of
from .mistakes import Finding, findings_of
from .series import Point, Trend, classify


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryGrowth:
    """What storages of one category did in the watched steps.

    Attributes:
        first_bytes: Before them.
        last_bytes: After them.
        tensors: By how many their number has grown.
    """

    category: str
    first_bytes: int
    last_bytes: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakReport(InNotebooks):
    """Whether memory grows, and why.

    Attributes:
        steps: How many steps were watched.
        first_step: The first of them; None where none was.
        last_step: The last one.
        live: What all tensors together do in the watched steps, counted storage by storage.
        history: What the recorded figures do, for as long as the record goes back.
        categories: What each category does.
        findings: What is wrong, the largest growth first.
        notes: What the reader should know.
        failure: Why the watch did not come to its end; None where it did.
        by: How the growth was to be added up; one of `WAYS`.
        groups: What has changed, added up so; none by category or phase.
        phases: What each phase of a step does; none unless asked for, and where it is not known.
    """

    steps: int
    first_step: int | None
    last_step: int | None
    live: Trend
    history: tuple[Series, ...]
    categories: tuple[CategoryGrowth, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    failure: str | None = None
    by: str = "category"
    groups: tuple[Group, ...] = ()
    phases: tuple[PhaseChange, ...] = ()

    @property
    def leaks(self) -> tuple[Finding, ...]:
        """The findings by which memory grows."""
        return tuple(finding for finding in self.findings if finding.is_leak)


def report_of(
    rows: Sequence[Row],
    steps: Sequence[Row],
    history: Sequence[Row],
    *,
    notes: tuple[str, ...] = (),
    failure: str | None = None,
) -> LeakReport:
    """Put together what the tables say.

    Args:
        rows: Those of python.leaks.
        steps: Those of python.leak_steps.
        history: Those of `HISTORY`.
    """
    numbers = sorted({row["step"] for row in steps})
    totals: defaultdict[int, int] = defaultdict(int)
    for row in steps:
        totals[row["step"]] += row["bytes"]
    points = [Point(number, float(totals[number])) for number in numbers]
    findings = findings_of(rows, steps) if failure is None else ()
    return LeakReport(
        steps=max(0, len(numbers) - 1),
        first_step=numbers[1] if len(numbers) > 1 else None,
        last_step=numbers[-1] if len(numbers) > 1 else None,
        live=_with_leaks(classify(points), findings),
        history=series_of(history),
        categories=_categories(steps, numbers),
        findings=findings,
        notes=notes,
        failure=failure,
    )


def _with_leaks(live: Trend, findings: Sequence[Finding]) -> Trend:
    """How all tensors do, of which some are known to stay: so they are not flat."""
    grown = sum(each.bytes_per_step or 0 for each in findings if each.is_leak)
    if live.kind != "flat" or not grown:
        return live
    return dataclasses.replace(live, kind="uneven", slope=float(grown))


def _categories(steps: Sequence[Row], numbers: Sequence[int]) -> tuple[CategoryGrowth, ...]:
    """What each category was before and after, the largest first."""
    if not numbers:
        return ()
    sizes = {(row["category"], row["step"]): (row["bytes"], row["tensors"]) for row in steps}
    found = []
    for category in dict.fromkeys(row["category"] for row in steps):
        first = sizes.get((category, numbers[0]), (0, 0))
        last = sizes.get((category, numbers[-1]), (0, 0))
        found.append(
            CategoryGrowth(
                category=category,
                first_bytes=first[0],
                last_bytes=last[0],
                tensors=last[1] - first[1],
            )
        )
    return tuple(sorted(found, key=lambda each: -each.last_bytes))
