"""The summary of a model: its modules as a tree, and the sums below it.

Rules of this file: pure functions of their arguments. What was not measured is shown as nothing,
never as 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....units import percent, size
from ..table import Heading, columns, draw_table
from ..text import cut_middle, escape_controls, plural, render_count

if TYPE_CHECKING:
    from ....diagnosis.model_summary import Model, Row, Summary

_HEADINGS = columns("module", "class", ">parameters", ">FLOPs", "input", "output", "dtype")
"""The last one only where the modules of a model differ in it."""
_SCALES = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_LONGEST_TEXT = 200
"""A name or shapes that are longer push all figures out of sight where nothing is cut."""
_NOTHING = "no model has been seen"


def render_summary(summary: Summary, *, width: int | None, color: bool) -> str:
    """Every model with parameters as a tree; the others in one line."""
    parts = []
    for model in _shown(summary):
        headings = _headings(model)
        rows = [_cells(row, indent=True)[: len(headings)] for row in model.modules]
        drawing = draw_table(headings, rows, width=width, color=color)
        lines = [_title(model), "", *drawing.heading, *drawing.rows]
        lines += [f"… {sentence}" for sentence in _left_out(model, drawing.hidden)]
        lines += ["", *(f"{name:<10} {text}" for name, text in _sums(model))]
        parts.append("\n".join(lines))
    empty = [m.facts["class"] for m in summary.models if m not in _shown(summary)]
    if empty:
        parts.append(escape_controls(f"Called beside it, without parameters: {', '.join(empty)}"))
    return "\n\n".join(parts) or _NOTHING


def summary_markdown(summary: Summary) -> str:
    """The same as GitHub-flavoured Markdown, names in full and nothing left out at the right."""
    parts = []
    for model in _shown(summary):
        headings = _headings(model)
        lines = [
            f"## {_cell(_title(model))}",
            "",
            f"| {' | '.join(heading.name for heading in headings)} |",
            f"| {' | '.join('---:' if h.is_number else '---' for h in headings)} |",
        ]
        for row in model.modules:
            cells = [_cell(text) for text in _cells(row, indent=False)[: len(headings)]]
            lines.append(f"| {' | '.join(cells)} |")
        below = [*_left_out(model, ()), *(f"{name}: {text}" for name, text in _sums(model))]
        lines += ["", *(f"- {_cell(line)}" for line in below)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or _NOTHING


def _shown(summary: Summary) -> list[Model]:
    return [m for m in summary.models if m.facts["parameters"] != 0 or m.facts["buffers"]]


def _headings(model: Model) -> list[Heading]:
    """The columns that tell something of this model."""
    is_mixed = len({row["dtype"] for row in model.modules} - {None}) > 1
    return _HEADINGS if is_mixed else _HEADINGS[:-1]


def _title(model: Model) -> str:
    facts = model.facts
    wrappers = f" in {facts['wrappers']}" if facts["wrappers"] else ""
    mode = {True: "training mode", False: "evaluation mode"}.get(facts["training"])
    steps = {row["observed_step"] for row in model.modules} - {None}
    seen = f"seen in step {max(steps)}" if steps else None
    told = [mode, facts["dtype"], facts["device"], seen, "compiled" if facts["compiled"] else None]
    line = f"{facts['class']}{wrappers}: {', '.join(part for part in told if part)}"
    return escape_controls(line)


def _cells(row: Row, *, indent: bool) -> list[str]:
    name = row["module"] or ""
    if indent and row["depth"]:
        name = "  " * row["depth"] + name.rpartition(".")[2]
    called = row["calls"] is not None and row["calls"] > 1
    texts = [
        f"{name} (x{row['calls']})" if called else name,
        row["class"] or "",
        render_count(row["parameters"]),
        _flops(row),
        row["input_shapes"] or "",
        row["output_shapes"] or "",
        row["dtype"] or "",
    ]
    told = [escape_controls(text) for text in texts]
    return [cut_middle(text, _LONGEST_TEXT) for text in told] if indent else told


def _flops(row: Row) -> str:
    """Operations with their unit; nothing where no formula is known."""
    if row["flops"] is None:
        return ""
    mark = "≥ " if row["flops_is_lower_bound"] else ""
    return f"{mark}{_scaled(row['flops'])}".rstrip()


def _sums(model: Model) -> Iterator[tuple[str, str]]:
    """The lines below the tree, each with its name."""
    facts, root = model.facts, model.modules[0] if model.modules else None
    parameters = f"{_count(facts['parameters'])}, {_size(facts['parameter_bytes'])}"
    if facts["trainable_share"] is not None:
        share = percent(facts["trainable_share"]).replace(".0 ", " ")
        parameters += f"; trainable {_count(facts['trainable'])}, {share}"
    yield "parameters", parameters
    yield "buffers", f"{_count(facts['buffers'])}, {_size(facts['buffer_bytes'])}"
    if root is not None and root["flops"] is not None:
        least = "at least " if root["flops_is_lower_bound"] else ""
        yield "forward", f"{least}{_scaled(root['flops'])}FLOPs in one call"
    if model.leaf_output_bytes is not None:
        yield "outputs", f"{size(model.leaf_output_bytes)} from the innermost modules in one call"


def _left_out(model: Model, hidden: tuple[str, ...]) -> Iterator[str]:
    """Sentences on what is not shown."""
    if model.hidden:
        yield f"{plural(model.hidden, 'module')} below; --depth N shows more levels"
    if hidden:
        yield f"the screen is too narrow for: {', '.join(hidden)}"


def _count(number: int | None) -> str:
    return "not known" if number is None else f"{number:,}"


def _size(number: int | None) -> str:
    return "size not known" if number is None else size(number)


def _scaled(number: int) -> str:
    """A number with three digits and the unit that fits: `1.23 G`."""
    for scale, unit in _SCALES:
        if number >= scale:
            value = number / scale
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{number} "


def _cell(text: Any) -> str:
    return escape_controls(str(text)).replace("\\", "\\\\").replace("|", "\\|")
