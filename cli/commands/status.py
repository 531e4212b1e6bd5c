"""`probing ENDPOINT status`: what the agent records, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..ask.replies import show
from ..command import AskCommand
from ..options import style_option, watch_option
from ..target import asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ..output.terminal import Screen
    from ..reports.status_report import StatusReport


@click.command("status", cls=AskCommand)
@target_options
@attach_option
@watch_option()
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, style: str) -> None:
    """Show what the agent records, and what that costs.

    For every source: whether it is on, rows written and lost, its cost per step, and what it leaves
    out for the setting `overhead`; what an accelerator does. A process that does not answer, or has
    ended, still tells what its files hold.
    """
    from ..render.process.status import render_status
    from ..reports.status_report import report_on

    def render(report: StatusReport, screen: Screen) -> str:
        return render_status(report, width=screen.width, color=screen.color)

    target = asked_target(context)
    context.exit(show(target, style, report_on, render))
