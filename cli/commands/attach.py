"""`probing attach PID`: put the agent into a process that was never prepared."""

from __future__ import annotations

import click

from ...attach.injectors.names import AUTO, NAMES
from ..ask.replies import show
from ..command import AskCommand
from ..completion import complete_endpoint_option
from ..render.process.attached import render_attached
from ..target import target_options, target_with


@click.command("attach", cls=AskCommand)
@click.argument(
    "endpoint", metavar="[PID]", required=False, shell_complete=complete_endpoint_option
)
@target_options
@click.option(
    "--method",
    type=click.Choice([AUTO, *NAMES]),
    default=AUTO,
    show_default=True,
    help="The way in.",
)
@click.pass_context
def command(context: click.Context, *, endpoint: str | None, method: str) -> None:
    """Put the agent into a running Python process.

    The process is held for some milliseconds, 17.5 at most where measured; the agent must answer
    within ten seconds, or --timeout. From then on every command works, and a training is recorded
    from its next step on. `probing detach PID` takes the agent out again.

    auto takes the first method that is open. remote-exec: Python's own, 3.14 and newer. thread: a
    thread in a system call is borrowed to start a new one. pending: the code is queued for the
    interpreter's next safe point.
    """
    target = target_with(context, endpoint)
    code = show(
        target,
        "text",
        lambda process: process.attach(how=method, timeout_s=target.timeout_s),
        lambda attached, _: render_attached(attached),
    )
    context.exit(code)
