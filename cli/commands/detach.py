"""`probing detach PID`: take the agent out of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..ask.replies import show
from ..command import AskCommand
from ..completion import complete_endpoint_option
from ..target import changed_target, target_options, target_with

if TYPE_CHECKING:
    from ...messages.common import Detached
    from ..output.terminal import Screen


@click.command("detach", cls=AskCommand)
@click.argument("endpoint", required=False, shell_complete=complete_endpoint_option)
@target_options
@click.option("--keep-record", is_flag=True, help="Keep the run folder with what was recorded.")
@click.pass_context
def command(context: click.Context, *, endpoint: str | None, keep_record: bool) -> None:
    """Take the agent out of a process.

    Hooks, threads, sockets and mappings go, and the record unless --keep-record is given. The job
    goes on.
    """
    target_with(context, endpoint)
    target = changed_target(context)
    context.exit(
        show(target, "text", lambda process: process.detach(keep_record=keep_record), _sentence)
    )


def _sentence(detached: Detached, _: Screen) -> str:
    """What happened, and what could not be undone."""
    lines = [f"the agent is leaving process {detached.pid}"]
    lines += [f"its record is kept in {detached.kept}"] if detached.kept else []
    lines += [f"left there: {what}" for what in detached.left]
    return "\n".join(lines)
