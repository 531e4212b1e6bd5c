"""What the agent records, and what that costs."""

from __future__ import annotations

from ....arguments import shown_command
from ....messages.card import FAILED_START
from ....settings import Settings
from ....units import duration, figure
from ...reports.status_report import SourceStatus, StatusReport
from ..table import columns, draw_table
from ..text import escape_controls, wrap_doc


def render_status(report: StatusReport, *, width: int | None, color: bool) -> str:
    """The process in one line, its sources in a table, and what it costs in a sentence."""
    card = report.card
    command = escape_controls(shown_command(card.command))
    rank = "" if card.rank is None else f", rank {card.rank}"
    of = f" of {card.world_size}" if rank and card.world_size else ""
    lines = [f"process {card.pid}{rank}{of} on {card.host}: {command}"]
    never_began = [one for one in card.problems if one.startswith(FAILED_START)]
    if never_began and report.sources is None:
        words = f"problem: {never_began[0].rstrip('.')}; nothing is recorded"
        return "\n".join([*lines, *wrap_doc(words, width)])
    lines.append(_cost(report))
    if report.device is not None:
        lines += [escape_controls(line) for line in report.device.lines()]
    if report.not_finite is not None:
        lines.append(f"problem: {report.not_finite.sentence()}")
    if report.restart is not None:
        lines += [escape_controls(f"  {line}") for line in report.restart.sentences()]
    if report.silence is not None:
        lines += wrap_doc(f"note: {report.silence}", width)
    lines += [f"problem: {escape_controls(problem)}" for problem in card.problems]
    if report.sources:
        lines += ["", *_table(report.sources, width=width, color=color)]
    return "\n".join(lines)


def _cost(report: StatusReport) -> str:
    if report.cost_s is None or report.share is None:
        if report.passes:
            return (
                f"no training step has ended after {report.passes:,} backward passes: as their"
                " gradients add up, they are micro-batches of one step. It ends where an optimizer"
                " steps, where gradients are removed, zeroed or followed by a change of the"
                " parameters, or where the script calls probing.step()"
            )
        if report.calls:
            return (
                f"no training is seen: each of its {report.calls:,} steps on record is a call of a"
                " model. What recording adds to them is not estimated"
            )
        return (
            "no training step has been recorded to its end: one ends where an optimizer of torch"
            " steps, where gradients of a backward pass are used, or where the script calls"
            " probing.step()"
        )
    cost = f"recording costs {duration(report.cost_s)} of a step, {figure(100 * report.share, 2)} %"
    last = "the last step" if report.steps == 1 else f"the last {report.steps} steps"
    basis = f"(estimated from {last})"
    limit, name = report.limit, "the limit"
    if limit is None:  # what was set stands in no file
        limit, name = Settings().overhead / 100, "the default limit"
    words = f"{name} of {figure(100 * limit, 3)} %"
    if report.share <= limit:
        return f"{cost}, within {words} {basis}"
    told = [source for source in report.sources or () if source.cost_s]
    dearest = max(told, key=lambda source: source.cost_s or 0.0, default=None)
    most = f"; most of that for {dearest.source}" if dearest is not None else ""
    return f"{cost}, more than {words} {basis}{most}"


def _table(sources: tuple[SourceStatus, ...], *, width: int | None, color: bool) -> list[str]:
    """One line per source, its note below it."""
    headings = columns("source", "state", "table", ">cost per step", ">rows", ">lost")
    rows = [
        [
            source.source,
            source.state,
            source.table,
            "" if source.cost_s is None else duration(source.cost_s),
            "" if source.rows is None else f"{source.rows:,}",
            "" if source.dropped is None else f"{source.dropped:,}",
        ]
        for source in sources
    ]
    drawing = draw_table(headings, rows, width=width, color=color)
    lines = list(drawing.heading)
    for line, source in zip(drawing.rows, sources, strict=True):
        lines += [line, *(wrap_doc(escape_controls(source.note), width) if source.note else [])]
    return lines
