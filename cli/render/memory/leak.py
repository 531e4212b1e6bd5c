"""Whether memory grows, and which mistake it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....diagnosis.leaks.series import LEAST_STEPS, Trend
from ....diagnosis.leaks.words import SERIES, SERIES_WAYS_OUT, TITLES, series_words
from ....units import size, size_change
from ..table import columns, render_table
from ..text import escape_controls, plural
from .holder import holder_text, short_file

if TYPE_CHECKING:
    from ....diagnosis.leaks.history import Series
    from ....diagnosis.leaks.mistakes import Finding
    from ....diagnosis.leaks.report import LeakReport

_SERIES = columns("series", "verdict", ">per step", ">since step", ">R²", ">steps", ">now")
_CATEGORIES = columns("category", ">before", ">after", ">growth", ">tensors")
_WITH_TENSORS = frozenset({"allocated", "resident set"})
"""Figures that grow where tensors stay; by less than they move by themselves, that is not seen."""
_UNSEEN = "no growth seen yet"
_MOST_SHAPES = 4
_MOST_GROUPS = 20


def render_leak(report: LeakReport, *, width: int | None, color: bool) -> str:
    """The verdict, the series it rests on, the categories, and each mistake."""
    rows = [_series_cells("live tensors", report.live, "flat")]
    for each in report.history:
        name = f"{each.name}, {each.device}" if each.device else each.name
        is_part = bool(report.leaks) and each.name in _WITH_TENSORS
        rows.append(_series_cells(name, each.trend, _UNSEEN if is_part else "flat"))
    blocks = [_verdict(report), render_table(_SERIES, rows, width=width, color=color)]
    blocks += _growth(report, width=width, color=color)
    if not report.leaks:
        blocks += [
            escape_controls(_series_advice(each)) for each in report.history if each.trend.grows
        ]
    for number, finding in enumerate(report.findings, 1):
        blocks.append("\n".join(escape_controls(line) for line in _finding(number, finding)))
    return "\n\n".join(blocks)


def _growth(report: LeakReport, *, width: int | None, color: bool) -> list[str]:
    """What has grown, in the way that was asked for."""
    if report.by == "phase":
        return _phases(report, width=width, color=color)
    if report.by == "category":
        parts = [
            (each.category, each.first_bytes, each.last_bytes, each.tensors)
            for each in report.categories
        ]
    else:
        parts = [
            (escape_controls(each.name), each.first_bytes, each.last_bytes, each.tensors)
            for each in report.groups
        ]
        if not parts and report.failure is None:
            return [f"of no {report.by} is there more or less after these steps than before"]
    shown = parts[:_MOST_GROUPS]
    left = parts[_MOST_GROUPS:]
    if left:
        sums = [sum(column) for column in list(zip(*left, strict=True))[1:]]
        shown.append((f"({len(left)} others)", sums[0], sums[1], sums[2]))
    if not shown:
        return []
    cells = [
        [name, size(first), size(last), size_change(last - first), f"{n:+,}" if n else "0"]
        for name, first, last, n in shown
    ]
    headings = columns(report.by, *_CATEGORIES[1:])
    return [render_table(headings, cells, width=width, color=color)]


def _phases(report: LeakReport, *, width: int | None, color: bool) -> list[str]:
    """What each phase adds to the memory in use, or takes from it."""
    if not report.phases:
        return []
    cells = [[each.name, size_change(each.bytes_per_step)] for each in report.phases]
    total = sum(each.bytes_per_step for each in report.phases)
    cells.append(["TOTAL", size_change(total)])
    headings = columns("phase", f">{report.phases[0].figure}, per step")
    return [render_table(headings, cells, width=width, color=color)]


def _verdict(report: LeakReport) -> str:
    """One sentence or two."""
    if report.failure is not None:
        return (
            f"the watch did not come to its end, after {plural(report.steps, 'step')}:"
            f" {report.failure}"
        )
    watched = f"{plural(report.steps, 'step')} ({report.first_step} to {report.last_step})"
    leaks = report.leaks
    if leaks:
        grown = sum(finding.bytes_per_step or 0 for finding in leaks)
        by = f": {size(grown)} per step stay in memory" if grown else ""
        return f"leak in {watched}{by}"
    growing = [each for each in report.history if each.trend.grows]
    if growing:
        names = " and ".join(series_words(each.name, each.device) for each in growing)
        return f"no tensor stayed in {watched}, but the record shows growth of {names}"
    few = report.steps + 1 < LEAST_STEPS
    more = f"; fewer than {LEAST_STEPS - 1} steps tell little: add --steps" if few else ""
    return f"no leak in {watched}{more}"


def _series_advice(series: Series) -> str:
    """What a series is that grows while no tensor is kept, and where to look."""
    words = SERIES[series.name]
    return f"{words[:1].upper()}{words[1:]} grows: {SERIES_WAYS_OUT[series.name]}"


def _series_cells(name: str, trend: Trend, flat: str) -> list[str | None]:
    kind = {"unknown": "not enough steps", "flat": flat}.get(trend.kind, trend.kind)
    return [
        name,
        kind,
        "" if trend.kind == "unknown" else size_change(trend.slope),
        "" if trend.first_step is None else str(trend.first_step),
        "" if trend.r2 is None else f"{trend.r2:.3f}",
        str(trend.steps),
        None if trend.last is None else size(trend.last),
    ]


def _finding(number: int, finding: Finding) -> list[str]:
    """What it is, what shows it, who refers to it, and the way out."""
    per_step = (
        "" if finding.bytes_per_step is None else f": {size(finding.bytes_per_step)} per step"
    )
    lines = [f"{number}. {TITLES[finding.mistake]}{per_step}"]
    own = [row for row in finding.rows if row["holder"] != "graph"]
    graph = [row for row in finding.rows if row["holder"] == "graph"]
    lines += [f"   {_kept(row)}" for row in own[:_MOST_SHAPES]]
    if len(own) > _MOST_SHAPES:
        lines.append(f"   and {plural(len(own) - _MOST_SHAPES, 'other kind')} of tensors")
    if graph:
        lines.append(f"   {_graph(graph)}")
    is_shown = bool(finding.rows) and finding.mistake not in {"modules", "optimizer"}
    holder = _holder((own or graph)[0]) if is_shown else ""
    lines += [f"   {holder}"] if holder else []
    return [*lines, f"   instead: {finding.instead}"]


def _kept(row: Mapping[str, Any]) -> str:
    """Which tensors stayed, how many per step."""
    if row["tensors_per_step"] is None:
        return _more_of(row)
    module = f" of {row['module']}" if row["module"] else ""
    return (
        f"{row['tensors_per_step']:g} per step: {row['shape']} on {row['device']},"
        f" {row['category'].replace('_', ' ')}{module}; {row['tensors']:,} in all,"
        f" {size(row['bytes'])}"
    )


def _more_of(row: Mapping[str, Any]) -> str:
    """What there is more of that is no tensor."""
    if row["name"] == "items":
        return f"{row['kept']:,} items more, in a {row['container']}"
    if row["name"] == "workers":
        return f"{size(row['kept'])} more in the watched steps, in all workers together"
    of = ""
    if row["name"] == "descriptors" and row["path"]:
        of = f"; {row['place']} lead to {row['path']}"
    return f"{row['kept']:,} {row['name']} more, added in {plural(row['births'], 'step')}{of}"


def _graph(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the graphs of kept tensors keep."""
    numbers = sum(row["tensors_per_step"] for row in rows)
    grown = sum(row["bytes_per_step"] for row in rows)
    return f"its graph keeps {numbers:g} tensors more per step, {size(grown)}"


def _holder(row: Mapping[str, Any]) -> str:
    """Who refers to one of them; of what is no storage, where the newest comes from."""
    if row["holder"] == "cycle" or (row["name"] == "descriptors" and row["category"] is None):
        return ""
    if row["category"] is not None or row["name"] == "items":
        return holder_text(row)
    if not row["path"]:
        return ""
    at = f", {short_file(row['file'])}:{row['lineno']}" if row["lineno"] else ""
    if row["name"] == "workers":
        return f"they make samples in {row['path']}{at}"
    if row["name"] == "threads":
        return f"the newest, `{row['path']}`, runs {row['place'] or 'what is not known'}{at}"
    return f"the newest on `{row['path']}`: {row['place']}{at}"
