"""Where the memory of a process is, on one screen or in Markdown.

Rules of this file: pure functions of their arguments. What was not measured is left out or shown as
nothing, never as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any

from .... import units
from ....diagnosis.device_use import xid_lines
from ....diagnosis.memory.activation_theory import FORMULA, bytes_of_layers
from ....diagnosis.memory.memory_report import Device, MemoryReport, room_of, scattered_bytes
from ....tables import CATEGORIES, MOMENTS, PINNED
from ..sections import Section, markdown_sections, render_sections
from ..table import columns
from ..text import escape_controls, plural
from .holder import holder_text, short_file

Row = Mapping[str, Any]

_NOW, _BEFORE_BACKWARD = MOMENTS
_SHOWN_AS = {_NOW: "at step end", _BEFORE_BACKWARD: "before backward"}
_NOTHING = "no tensor was seen"
_ADAPTERS = "  of it adapters"


def render_memory(report: MemoryReport, *, width: int | None, color: bool) -> str:
    """The report for a terminal."""
    head, sections = memory_head(report), memory_sections(report)
    if not sections:
        return "\n".join([*head, _NOTHING])
    text = render_sections(head, sections, width=width, color=color)
    return "\n".join([text, "", *memory_suggestions(report)])


def memory_markdown(report: MemoryReport) -> str:
    """The same as Markdown."""
    text = markdown_sections("Memory", memory_head(report), memory_sections(report))
    lines = [f"- {line}" for line in memory_suggestions(report)]
    return "\n\n".join([text, "## Suggestions", "\n".join(lines)])


def memory_head(report: MemoryReport) -> list[str]:
    """A line for the process, its cgroup, the node, each device, and the peak."""
    lines: list[str] = []
    row = next(iter(report.newest.values()), None)
    if row is not None:
        lines += _host(report, row)
    names = [device.name for device in report.devices]
    accelerators = [name for name in report.newest if name != "cpu"]
    for name in dict.fromkeys([*(n for n in names if n != "cpu"), *accelerators]):
        lines += _accelerator(report, name)
    lines += _pinned(report)
    lines += _peak(report, row)
    lines += _backward(report)
    return [escape_controls(line) for line in lines]


def _host(report: MemoryReport, row: Row) -> Iterator[str]:
    """The lines of what the kernel counts."""
    resident = row["resident_bytes"]
    if resident is not None:
        base = next(iter(report.baseline.values()), None)
        tracked = _total(report, "cpu")
        words = [f"{units.size(resident)} resident"]
        if tracked is not None:
            words.append(f"{units.size(tracked)} tensors")
            words.append(f"{units.size(max(resident - tracked, 0))} untracked")
        if base is not None and base["resident_bytes"] is not None:
            words.append(f"{units.size(base['resident_bytes'])} as the agent came")
        yield f"process  {', '.join(words)}"
    if row["cgroup_bytes"] is not None:
        limit = row["cgroup_limit_bytes"]
        of = "no limit" if limit is None else f"limit {units.size(limit)}"
        kills = row["cgroup_oom_kills"]
        killed = f", {plural(kills, 'kill')} by the OOM killer" if kills else ""
        yield f"cgroup   {units.size(row['cgroup_bytes'])}, {of}{killed}"
    if row["node_used_bytes"] is not None:
        yield f"node     {_of(row['node_used_bytes'], row['node_total_bytes'])}"


def _accelerator(report: MemoryReport, name: str) -> Iterator[str]:
    """The lines of one device: what its allocator holds, and what the driver counts beyond."""
    row = report.newest.get(name)
    if row is None:
        return
    words = []
    allocated, reserved = row["allocated_bytes"], row["reserved_bytes"]
    if allocated is not None:
        words.append(f"{units.size(allocated)} allocated (peak {units.size(row['peak_bytes'])})")
        tracked = _total(report, name)
        if tracked is not None:
            words.append(f"{units.size(allocated - tracked)} of it in no tensor")
        words.append(f"{units.size(reserved)} reserved")
    used = row["device_used_bytes"]
    if used is not None:
        words.append(f"{_of(used, row['device_total_bytes'])} in use on the device")
    words += _beyond(report, name, row)
    yield f"{name:<8} {', '.join(words)}"
    use = report.device
    if use is not None and _sample(report, name) is not None:
        yield from (f"         {text}" for text in (use.holders(), *xid_lines(use.xids)) if text)
    own = [segment for segment in report.segments if segment["device"] == name]
    scattered = scattered_bytes(own)
    if scattered is not None:
        free = sum(segment["free_bytes"] for segment in own)
        largest = max(segment["largest_free_bytes"] for segment in own)
        yield (
            f"         {plural(len(own), 'segment')}: {units.size(free)} free in them, the largest"
            f" piece {units.size(largest)}; {units.size(scattered)} in smaller ones"
        )


def _pinned(report: MemoryReport) -> Iterator[str]:
    """The line of what torch has pinned, which a process's resident set has in it."""
    for row in report.segments:
        if row["pool"] == PINNED:
            used = row["allocated_bytes"]
            of_it = "" if used is None else f", {units.size(used)} of it in use"
            yield f"pinned   {units.size(row['reserved_bytes'])} of the host's memory{of_it}"


def _sample(report: MemoryReport, name: str) -> Row | None:
    """What the driver tells of a device; None where it does not."""
    sample = None if report.device is None else report.device.sample
    return sample if sample is not None and sample["device"] == name else None


def _beyond(report: MemoryReport, name: str, row: Row) -> Iterator[str]:
    """What is in use beside what the allocator has, of this process alone where that is told."""
    reserved, used, sample = row["reserved_bytes"], row["device_used_bytes"], _sample(report, name)
    if reserved is None:
        return
    own = None if sample is None else sample["own_bytes"]
    if own is not None:
        if own >= reserved:  # else the allocator has taken more since
            yield f"{units.size(own - reserved)} of this process's outside of torch's allocator"
    elif used is not None:
        size = units.size(used - reserved)
        if sample is not None and (sample["processes"] or 0) > 1:
            yield f"{size} of other processes or untracked"
        else:
            yield f"{size} untracked{_baseline(report, name)}"


def _baseline(report: MemoryReport, name: str) -> str:
    """What was in use on the device before this process's first tensor was."""
    row = report.baseline.get(name)
    if row is None or row["device_used_bytes"] is None or row["reserved_bytes"] is None:
        return ""
    return f" ({units.size(row['device_used_bytes'] - row['reserved_bytes'])} as it was first seen)"


def _peak(report: MemoryReport, row: Row | None) -> Iterator[str]:
    """Where the peak was, and how far from what is in use now."""
    peak = report.peak
    if peak is None:
        return
    size, now = peak["allocated_bytes"], None
    if row is not None:
        now = row["resident_bytes"] if row["allocated_bytes"] is None else row["allocated_bytes"]
    ratio = f", {size / now:.2f} x what is in use now" if now else ""
    where = f'"{peak["module"]}" ({peak["stage"]}, step {peak["step"]})'
    yield f"peak     {units.size(size)} in {where}{ratio}"


def _backward(report: MemoryReport) -> Iterator[str]:
    """What backward passes add, and whether that is more than their gradients."""
    for one in report.backward:
        sign = "-" if one.growth_bytes < 0 else "+"
        words = f"{sign}{units.size(abs(one.growth_bytes))} over a pass on {one.device}"
        words += f" (median of {one.passes}), from {units.size(one.before_bytes)} before it"
        if one.is_excessive is None:
            verdict = "not judged, as the resident set grows by other things, too"
        else:
            own = units.size(one.gradients_bytes or 0)
            verdict = f"usual: the gradients take {own}"
            if one.is_excessive:
                verdict = f"more than the {own} that the gradients take"
        yield f"backward {words}; {verdict}"


def memory_sections(report: MemoryReport) -> list[Section]:
    """Its tables: categories of each device, the largest tensors, and what else was asked for."""
    sections = [_categories(report, device) for device in report.devices]
    if report.tensors:
        sections.append(_tensors(report))
    if report.referrers is not None:
        sections.append(_referrers(report))
    if report.transformer is not None:
        sections.append(_theory(report))
    return sections


def _categories(report: MemoryReport, device: Device) -> Section:
    """The categories of one device, with what they take at each moment seen."""
    moments = [moment for moment in reversed(MOMENTS) if moment in device.categories]
    headings = columns(device.name)
    for moment in moments:
        headings += columns(f">{_SHOWN_AS[moment]}", ">share")
    headings += columns(">storages", "largest")
    found = {m: {row["category"]: row for row in device.categories[m]} for m in moments}
    rows = []
    for category in CATEGORIES:
        own = [found[moment][category] for moment in moments]
        pairs = ((units.size(row["bytes"]), units.percent(row["share"])) for row in own)
        cells = [cell for pair in pairs for cell in pair]
        name, largest = category.replace("_", " "), own[0]["largest"] or ""
        rows.append((name, *cells, str(own[0]["storages"]), largest))
        adapters = [row.get("adapter_bytes", 0) for row in own]  # an older agent does not tell
        if any(adapters):
            parts = [
                (
                    units.size(size),
                    units.percent(size * row["share"] / row["bytes"]) if row["bytes"] else "",
                )
                for size, row in zip(adapters, own, strict=True)
            ]
            rows.append((_ADAPTERS, *(cell for part in parts for cell in part), "", ""))
    totals = [cell for m in moments for cell in (units.size(device.total(m) or 0), "100.0%")]
    count = sum(row["storages"] for row in found[moments[0]].values())
    rows.append(("TOTAL", *totals, str(count), ""))
    room = room_of(device.name, report.newest.get(device.name))
    total = device.total(moments[0])
    notes = []
    if room and total:
        notes.append(
            f"the tensors take {units.percent(total / room)} of the {units.size(room)} that there"
            " are"
        )
    notes += _quantized(found[moments[0]].values())
    return Section(
        title=device.name, headings=tuple(headings), rows=tuple(rows), note="; ".join(notes)
    )


def _quantized(rows: Any) -> Iterator[str]:
    """What numbers of few bits save against those of 16."""
    weights = [r for r in rows if r["category"] in {"parameters", "buffers"}]
    size = sum(r["quantized_bytes"] for r in weights)
    whole = 2 * sum(r.get("quantized_numbers", r["quantized_bytes"]) for r in weights)
    if size:
        now, then = units.size(size), units.size(whole)
        yield f"quantized weights: {now}, in 16 bits they would take {then}"


def _tensors(report: MemoryReport) -> Section:
    rows = tuple(
        (
            units.size(row["bytes"]),
            row["category"].replace("_", " "),
            ".".join(part for part in (row["module"], row["name"]) if part),
            f"{row['dtype']}[{row['shape']}]",
            row["device"],
            "" if row["age_steps"] is None else f"{row['age_steps']:,}",
            short_file(row["frame"]) if row["frame"] else "",
        )
        for row in report.tensors
    )
    headings = columns(">size", "category", "module", "tensor", "device", ">age", "made in")
    known = [any(row[at] for row in rows) for at in range(len(headings))]
    return Section(
        title="Largest tensors",
        headings=tuple(compress(headings, known)),
        rows=tuple(tuple(compress(row, known)) for row in rows),
        note="age: steps since it was allocated" if any(row[5] for row in rows) else "",
    )


def _referrers(report: MemoryReport) -> Section:
    rows: list[tuple[str, ...]] = []
    for tensor in report.tensors:
        found = (report.referrers or {}).get(tensor["address"], ())
        names = list(dict.fromkeys(holder_text(row) for row in found))
        about = (units.size(tensor["bytes"]), _tensor_name(tensor))
        rows += [(*about, name) for name in names or ["gone by the end of the next step"]]
    headings = columns(">size", "tensor", "referred to by")
    return Section(title="Who refers to them", headings=headings, rows=tuple(rows))


def _tensor_name(row: Row) -> str:
    """What a storage is called, or what it looks like."""
    name = ".".join(part for part in (row["module"], row["name"]) if part)
    return name if row["name"] else f"{row['dtype']}[{row['shape']}]"


def _theory(report: MemoryReport) -> Section:
    """What the activations should take by the formula, beside what they do."""
    model = report.transformer
    assert model is not None
    measured = bytes_of_layers(model, report.activations)
    size = units.size(model.layer_bytes)
    rows = [
        (layer, size, units.size(own) if own else "", _ratio(own, model.layer_bytes))
        for layer, own in measured.items()
    ]
    total = sum(measured.values())
    ratio = _ratio(total, model.all_bytes)
    rows.append(
        ("all layers", units.size(model.all_bytes), units.size(total) if total else "", ratio)
    )
    headings = columns("layer", ">formula", ">measured", ">ratio")
    note = (
        f"formula: {FORMULA} bytes per layer, with B={model.batch} T={model.length}"
        f" C={model.width} D={model.inner}; for two-byte numbers, nothing shared or recomputed"
    )
    return Section(title="Theory", headings=headings, rows=tuple(rows), note=note)


def _ratio(measured: int, formula: int) -> str:
    return f"{measured / formula:.2f}" if measured else ""


def memory_suggestions(report: MemoryReport) -> list[str]:
    """What to do, or why there is nothing."""
    if not report.suggestions:
        known = any(room_of(name, row) for name, row in report.newest.items())
        why = "memory use is low" if known else "how much memory there is is not known"
        return [f"no suggestions: {why}"]
    return [f"suggestion: {one.action} [{one.evidence}]" for one in report.suggestions]


def _total(report: MemoryReport, name: str) -> int | None:
    """What the tensors of a device take at a step's end."""
    for device in report.devices:
        if device.name == name:
            return device.total(_NOW)
    return None


def _of(used: int, total: int | None) -> str:
    if not total:
        return units.size(used)
    return f"{units.size(used)} of {units.size(total)} ({units.percent(used / total, digits=0)})"
