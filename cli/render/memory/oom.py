"""An out-of-memory error: what was there, what grew, what to do."""

from __future__ import annotations

from datetime import datetime, timezone

from ....diagnosis.memory.out_of_memory import OomReport, Row
from ....units import age, percent, size
from ..sections import Section, render_sections
from ..table import columns
from ..text import escape_controls, plural, wrap_sentence

_NOTHING = "no out-of-memory error has been recorded"
_BOUNDS = {
    "device": "of the device's",
    "address_space": "of the address space's limit of",
    "machine": "of the machine's",
}
_PHASES = {
    "data": "while a batch was made",
    "forward": "in the forward pass",
    "loss": "after the forward pass, outside of any module",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's step",
    "other": "outside of the training step",
}
_WIDEST = 96


def render_oom(report: OomReport, *, most: int, width: int | None, color: bool) -> str:
    """The report as a text.

    Args:
        most: Calls that grew to show; 0 for all.
    """
    blocks = []
    if report.oom is not None:
        head = _head(report.oom, report.feed, report.errors, width)
        sections = [*_categories(report), *_growth(report, most)]
        blocks.append(render_sections(head, sections, width=width, color=color))
    elif report.ending is None or not report.ending.by_memory:
        blocks.append(_NOTHING)
    parts = (_ending(report, width), _resident(report, width), _advice(report, width))
    return "\n\n".join([*blocks, *("\n".join(lines) for lines in parts if lines)])


def _head(oom: Row, feed: Row | None, errors: int, width: int | None) -> list[str]:
    """The facts of the error, one line each."""
    module = oom["module"]
    where = f"step {oom['step']}, {_PHASES.get(oom['phase'], oom['phase'])}"
    if module is not None:
        where += f", {module}" + (f" ({oom['root']})" if oom["root"] not in {None, module} else "")
    lines = [f"out of memory on {oom['device']}: {where}"]
    if oom["error"]:
        lines += _wrapped(oom["error"], width, "  ")
    lines += [f"  {name:<10} {text}" for name, text in _facts(oom, feed).items() if text]
    if errors > 1:
        lines.append(f"  {plural(errors, 'error')} on record; this is number {oom['seq']}")
    return [escape_controls(line) for line in lines]


def _facts(oom: Row, feed: Row | None) -> dict[str, str]:
    """The amounts and the batch; an empty text for what is not known."""
    bound = _BOUNDS.get(oom["bounded_by"], "of")
    free = _amount(oom["free_bytes"])
    if free and oom["total_bytes"] is not None:
        free += f" {bound} {size(oom['total_bytes'])}"
    held = _amount(oom["allocated_bytes"])
    if held and oom["reserved_bytes"] is not None:
        held += f", {size(oom['reserved_bytes'] - oom['allocated_bytes'])} more cached but unused"
    batch = oom["batch"] or ""
    if batch and oom["micro_batch"] is not None:
        batch += f", micro-batch {oom['micro_batch']}"
    return {
        "asked for": _amount(oom["requested_bytes"]),
        "free": free,
        "tensors": held,
        "resident": _amount(oom["resident_bytes"]),
        "batch": batch,
        "data": _fetched(feed),
        "when": _moment(oom["time_ns"]),
    }


def _fetched(feed: Row | None) -> str:
    """Which batch of its loader had been fetched last, counted from 1."""
    if feed is None or feed["batch"] is None:
        return ""
    of = "" if feed["batches"] is None else f" of {feed['batches']:,}"
    epoch = "" if feed["epoch"] is None else f" in epoch {feed['epoch']:,}"
    return f"batch {feed['batch'] + 1:,}{of}{epoch} of loader {feed['loader']}"


def _categories(report: OomReport) -> list[Section]:
    """What the tensors were used for."""
    if not report.categories:
        return []
    whole: dict[str, int] = {}
    for row in report.categories:
        whole[row["device"]] = whole.get(row["device"], 0) + (row["bytes"] or 0)
    rows = tuple(
        (
            row["category"].replace("_", " "),
            row["device"],
            *_taken(row, whole[row["device"]]),
            row["dtype"] or "",
        )
        for row in report.categories
    )
    headings = columns("tensors", "device", ">size", ">share", ">storages", "mostly")
    return [Section(title="Tensors", headings=headings, rows=rows)]


def _taken(row: Row, whole: int) -> tuple[str, str, str]:
    """The size of a category, its share of the device's, and how many storages it has."""
    if row["bytes"] is None:
        return "not known", "", ""
    return size(row["bytes"]), percent(row["bytes"] / (whole or 1)), f"{row['tensors']:,}"


def _growth(report: OomReport, most: int) -> list[Section]:
    if not report.growth:
        return []
    shown = report.growth[:most] if most else report.growth
    rows = tuple(
        (
            f"{row['module'] or ''}",
            row["stage"],
            f"{row['step']}",
            f"+{size(row['growth_bytes'])}",
            size(row["allocated_bytes"]),
            f"{age(row['age_s'])} before",
        )
        for row in shown
    )
    headings = columns("grew in", "stage", ">step", ">by", ">to", ">ended")
    left = len(report.growth) - len(shown)
    note = f"{plural(left, 'earlier call')} not shown: -n 0" if left else ""
    return [Section(title="Growth", headings=headings, rows=rows, note=note)]


def _ending(report: OomReport, width: int | None) -> list[str]:
    ending = report.ending
    if ending is None:
        return []
    lines = ["how it ended"]
    for sentence in ending.certain:
        lines += _wrapped(sentence, width, "  ")
    for sentence in ending.likely:
        lines += _wrapped(f"Likely, not certain: {sentence}", width, "  ")
    if ending.was_killed and not ending.by_memory:
        lines += _wrapped("Nothing on record points to the OOM killer.", width, "  ")
    return lines


def _resident(report: OomReport, width: int | None) -> list[str]:
    """How the process grew before it was killed."""
    row = report.resident
    if row is None:
        return []
    text = (
        f"Its resident set went from {size(row['first_bytes'])} in step {row['first_step']} to"
        f" {size(row['last_bytes'])} in step {row['last_step']}, the last on record"
    )
    if row["fit"] is not None and row["per_step"] > 0 and row["steps"] > 2:
        text += f": {size(row['per_step'])} per step along a line (R² {row['fit']:.2f})"
    return ["what it held", *_wrapped(f"{text}.", width, "  ")]


def _advice(report: OomReport, width: int | None) -> list[str]:
    """What to do, in order."""
    lines = ["what to do"] if report.advice else []
    for number, advice in enumerate(report.advice, 1):
        lines += _wrapped(f"{number}. {advice.action}", width, "  ", "     ")
        lines += _wrapped(f"({advice.evidence})", width, "     ")
    return lines


def _wrapped(text: str, width: int | None, indent: str, rest: str | None = None) -> list[str]:
    room = _WIDEST if width is None else min(width, _WIDEST)
    return wrap_sentence(text, room, indent, rest)


def _amount(number: int | None) -> str:
    return "" if number is None else size(number)


def _moment(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns * 1e-9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
