"""`probing ENDPOINT`: a process on one screen; a job as a grid of its ranks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ..ask.replies import fitted, show, write_answer
from ..command import AskCommand
from ..options import style_option, watch_option
from ..target import Target, asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ..reports.overview import Overview


@click.command("overview", cls=AskCommand)
@target_options
@attach_option
@watch_option()
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, style: str) -> None:
    """Show a process on one screen: step, speed, loss, phases, memory, modules, findings.

    The same as `probing ENDPOINT` without a command. Everything comes from the record and from the
    kernel, so it works whatever state the process is in, and nothing holds the training. Findings
    are those of the doctor's rules that need no more; `doctor` looks at all. What stands for
    several processes, such as `-t all`, is shown as a grid of ranks.
    """
    target = asked_target(context)
    if target.has_many:
        context.exit(_show_grid(target, style))
    from ..render.process.overview import render_overview
    from ..reports.overview import overview_of

    context.exit(show(target, style, overview_of, fitted(render_overview), _plain))


def _plain(found: Overview) -> dict[str, Any]:
    plain = dataclasses.asdict(found)
    for finding in plain["findings"]:
        del finding["order"]
    return plain


def _show_grid(target: Target, style: str) -> int:
    """The ranks of a job."""
    from ..render.ranks.grid import render_grid
    from ..reports.rank_grid import grid_of

    grid = grid_of(target)
    write_answer(grid, style, fitted(render_grid, asked=target.words))
    return grid.exit_code
