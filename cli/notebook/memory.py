"""Where memory is: a bar for each device and moment, and the tables of the command behind lines."""

from __future__ import annotations

from ... import units
from ...diagnosis.memory.memory_report import Device, MemoryReport
from ...tables import CATEGORIES, MOMENTS
from ..render.memory.report import memory_head, memory_sections, memory_suggestions
from ..render.text import wrap_lines
from .html import details, escaped, paragraphs, pre, section
from .pictures import bar
from .texts import WIDTH

_WORDS = dict(zip(MOMENTS, ("at the end of a step", "as a backward pass begins"), strict=True))


def memory_html(report: MemoryReport) -> str:
    """The report, the bars first."""
    bars = "".join(_bar(device, moment) for device in report.devices for moment in MOMENTS)
    tables = "".join(
        details(escaped(one.title), section(one), is_open=not at)
        for at, one in enumerate(memory_sections(report))
    )
    head = pre(wrap_lines("\n".join(memory_head(report)), WIDTH))
    notes = paragraphs([*memory_suggestions(report), *report.notes])
    return f"{head}{bars}{tables}{notes}"


def _bar(device: Device, moment: str) -> str:
    rows = device.categories.get(moment)
    if rows is None:
        return ""
    sizes = {row["category"]: row["bytes"] for row in rows}
    parts = {category.replace("_", " "): sizes.get(category, 0) for category in CATEGORIES}
    total = units.size(device.total(moment) or 0)
    return bar(f"{device.name}, {_WORDS[moment]}: {total} in tensors", parts, units.size)
