"""A prediction of memory: its parts now and as asked, and whether it fits."""

from __future__ import annotations

from .... import units
from ....messages.about.fit import MISSING, FitAnswer, FitPeak, LargestFit, error_of, needed_bytes
from ..table import columns, render_table
from ..text import escape_controls, plural


def render_fit(
    answer: FitAnswer, *, limit_bytes: int | None, width: int | None, color: bool
) -> str:
    """The prediction of one step.

    Args:
        limit_bytes: What it is to fit into; None for what the process may have.
    """
    lines = [_head(answer), _table(answer, width=width, color=color)]
    limit = answer.room_bytes if limit_bytes is None else limit_bytes
    where = (answer.room or "") if limit_bytes is None else "what was given"
    lines.append("\n".join([_verdict(needed_bytes(answer), limit, where), *basis_lines(answer)]))
    return "\n\n".join(lines)


def render_largest(found: LargestFit, *, width: int | None, color: bool) -> str:
    """The largest batch that fits, and the prediction for it."""
    answer = found.answer
    told = "\n".join(largest_lines(found))
    shown = [_head(answer), _table(answer, width=width, color=color), told]
    return "\n\n".join([*shown, "\n".join(basis_lines(answer))])


def largest_lines(found: LargestFit) -> list[str]:
    """The largest batch, how to keep the samples of a step with it, and what was tried."""
    answer = found.answer
    most = answer.asked.shape.batch
    beyond = f"; {found.next_batch:,} does not fit" if found.next_batch else ""
    margin = units.percent(found.margin, digits=0)
    limit = f"{units.size(found.limit_bytes)}, a margin of {margin} taken off"
    pairs = ", ".join(f"{size:,} x {times:,}" for size, times in found.pairs)
    samples = found.pairs[0][0] * found.pairs[0][1] if found.pairs else 0
    tried = ", ".join(f"{batch:,}" for batch in found.tried)
    how = "simulated" if answer.basis is None else "computed"
    return [
        f"largest batch: {most:,} in {limit}{beyond}",
        f"for the {plural(samples, 'sample')} per step of now, batch x accumulation: {pairs}",
        f"{how} batches: {tried}",
    ]


def _head(answer: FitAnswer) -> str:
    """What it is about."""
    step = "" if answer.step is None else f", step {answer.step:,}"
    blocks = ""
    if answer.blocks is not None:
        kind, path = escape_controls(answer.block_class or ""), escape_controls(answer.blocks)
        blocks = f"; blocks: {kind} in {path}"
        if answer.config_field:
            blocks += f", {escape_controls(answer.config_field)}"
    head = f"{escape_controls(answer.model)} on {answer.device}{step}{blocks}"
    return "\n".join([head, *(f"{name}: {_shape(peak)}" for name, peak in _peaks(answer))])


def _peaks(answer: FitAnswer) -> list[tuple[str, FitPeak]]:
    """Each peak and what it is called; one where nothing else is asked for."""
    is_same = answer.asked == answer.now
    return [("now", answer.now), *([] if is_same else [("asked", answer.asked)])]


def _table(answer: FitAnswer, *, width: int | None, color: bool) -> str:
    named = _peaks(answer)
    peaks = [peak for _, peak in named]
    sizes = [{part.category: part.bytes for part in peak.parts} for peak in peaks]
    names = list(dict.fromkeys(part.category for peak in peaks for part in peak.parts))
    names.sort(key=lambda name: -max(size.get(name, 0) for size in sizes))
    rows: list[list[str | None]] = [
        [name, *(units.size(size.get(name, 0)) for size in sizes)] for name in names
    ]
    rows.append(["all tensors, at the peak", *(units.size(peak.bytes) for peak in peaks)])
    fixed = answer.fixed_bytes
    if fixed is not None:
        rows.append(["beside tensors", *(units.size(fixed) for _ in peaks)])
        rows.append(["needed", *(units.size(peak.bytes + fixed) for peak in peaks)])
    rows.append(["the peak is in", *(peak.phase for peak in peaks)])
    headings = columns("memory", *(f">{name}" for name, _ in named))
    return render_table(headings, rows, width=width, color=color)


def _shape(peak: FitPeak) -> str:
    """The sizes of a step in a few words."""
    shape = peak.shape
    words = [f"batch {shape.batch:,}"]
    if shape.seq is not None:
        words.append(f"length {shape.seq:,}")
    if shape.layers is not None:
        words.append(plural(shape.layers, "block"))
    return ", ".join(words)


def _verdict(needed: int, limit: int | None, where: str) -> str:
    """Whether it fits."""
    if limit is None:
        return f"needed: {units.size(needed)}; how much there is, is not known"
    share = f"{units.percent(needed / limit)} of {units.size(limit)} ({where})"
    if needed <= limit:
        return f"it fits: {units.size(needed)} is {share}"
    return f"it does not fit: {units.size(needed)} is {share}"


def basis_lines(answer: FitAnswer) -> list[str]:
    """What the prediction rests on, and how good it is."""
    if answer.basis is not None:
        return _measured_basis(answer)
    error = error_of(answer)
    checked = "not checked"
    if error is not None and answer.measured_bytes is not None:
        measured = units.size(answer.measured_bytes)
        change = units.percent_change(error)
        checked = f"{change} for the step as it is, against {measured} that were measured"
        if any(part.category == MISSING for part in answer.now.parts):
            checked += "; what is missing is added, and taken to grow with the batch"
    lines = [
        f"based on: the model's own code, run without data; loss: {escape_controls(answer.loss)}",
        f"prediction error: {checked}",
        f"the training stood still for {answer.held_s:.1f} s",
    ]
    return lines + [f"note: {escape_controls(note)}" for note in answer.notes]


def _measured_basis(answer: FitAnswer) -> list[str]:
    """The same of one that scales what was measured."""
    checked = "not checked: all measured steps are of one size"
    if answer.miss is not None:
        others = plural((answer.shapes or 2) - 1, "other size")
        checked = f"{units.percent_change(answer.miss)} at most for the {others} that were measured"
    lines = [
        f"based on: {answer.basis}",
        f"prediction error: {checked}",
    ]
    return lines + [f"note: {escape_controls(note)}" for note in answer.notes]
