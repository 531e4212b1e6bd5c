"""`probing ENDPOINT status`: what the agent records, and what that costs."""

from __future__ import annotations

import click

from ..ask.replies import fitted, show
from ..command import AskCommand
from ..options import style_option, watch_option
from ..target import asked_target, attach_option, target_options


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

    context.exit(show(asked_target(context), style, report_on, fitted(render_status)))
