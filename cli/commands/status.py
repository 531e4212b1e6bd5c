"""`probing ENDPOINT status`: what the agent records, and what that costs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from .. import terminal
from ..ask.asking import show
from ..target import asked_target, attach_option, style_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ..reports.status_report import StatusReport


@click.command("status")
@target_options
@attach_option
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, style: str) -> None:
    """Show what the agent records, and what that costs.

    Every source of the record: whether it is on, how many rows it has written and lost, what it
    costs in a step, and what it leaves out to stay within the setting `overhead`. Where an
    accelerator is in use, what that does. A process that does not answer, or has ended, still tells
    what its files hold.
    """
    target = asked_target(context)

    context.exit(show(target, style, _ask, _render, _plain))


def _ask(process: Process) -> StatusReport:
    from ..reports.status_report import report_on

    return report_on(process)


def _render(report: StatusReport) -> str:
    from ..render.status import render_status

    screen = terminal.screen()
    return render_status(report, width=screen.width, color=screen.color)


def _plain(report: StatusReport) -> Any:
    return dataclasses.asdict(report)
