"""The list of processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....units import age
from ..table import Heading, columns, render_table
from ..text import cut_middle, escape_controls, render_count

if TYPE_CHECKING:
    from ....client.listing import ProcessSummary

_LONGEST_END = 32


def render_processes(processes: Sequence[ProcessSummary], *, width: int | None, color: bool) -> str:
    """One line per process.

    How it ended only where any has; the attempt only where a launcher has started a job anew; the
    address only where any listens; whether there is torch and a way in only where there is any
    process without an agent.
    """
    state = Heading(name="state", least=12)
    headings = columns(">pid", ">rank", state, ">step", ">step age", "command")
    rows = [
        [
            str(process.pid),
            "" if process.rank is None else str(process.rank),
            process.state if process.role is None else f"{process.role} of {process.parent}",
            render_count(process.step),
            "" if process.step_age_s is None else age(process.step_age_s),
            escape_controls(process.command),
        ]
        for process in processes
    ]
    if any(process.ended for process in processes):
        headings[3:3] = columns("ended")
        for row, process in zip(rows, processes, strict=True):
            row.insert(3, cut_middle(escape_controls(process.ended or ""), _LONGEST_END))
    if any(process.listen for process in processes):
        headings[-1:-1] = columns("listens on")
        for row, process in zip(rows, processes, strict=True):
            row.insert(-1, process.listen or "")
    if any(process.attempt for process in processes):
        headings[2:2] = columns(">attempt")
        for row, process in zip(rows, processes, strict=True):
            row.insert(2, "" if process.rank is None else str(process.attempt))
    if any(process.folder is None for process in processes):
        headings[-1:-1] = columns("torch", "attach")
        for row, process in zip(rows, processes, strict=True):
            row[-1:-1] = [_yes_or_no(process.has_torch), _attach(process)]
    return render_table(headings, rows, width=width, color=color)


def _yes_or_no(fact: bool | None) -> str:  # noqa: FBT001 - a value to be shown
    """A fact in a word, nothing where it is unknown."""
    return "" if fact is None else "yes" if fact else "no"


def _attach(process: ProcessSummary) -> str:
    """Whether `probing attach` would work; nothing where there is no reason for it."""
    has_none = process.folder is None and process.role is None
    return _yes_or_no(process.obstacle is None) if has_none else ""
