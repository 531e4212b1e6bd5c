"""`probing web`: a page in the browser about processes."""

from __future__ import annotations

import click

from ...linux import limited_memory
from ..command import AskCommand
from ..output.successor import become
from ..target import Target, target_options, target_with


@click.command("web", cls=AskCommand)
@click.argument("endpoint", required=False)
@target_options
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="PORT",
    help="Where to listen on 127.0.0.1; 0 takes a free one.  [default: 0]",
)  # fmt: skip
@click.option(
    "--allow-eval", is_flag=True,
    help="Let the page run code in the processes and act on trainings, after a second question.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, *, endpoint: str | None, port: int, allow_eval: bool) -> None:
    """Serve a page about processes: what they do, their steps, their record by SQL.

    Prints a link for a browser on this machine, and serves until Ctrl-C. Without an endpoint, of
    all processes of this machine; a run folder shows a run that has ended. The link holds a token
    that only this page uses, and no request leaves the machine. From another one: `ssh -t -L
    PORT:127.0.0.1:PORT HOST`, with the same --port.

    It asks processes as the commands do, and looks no more often than 2 % of a processor pays for.
    Without --allow-eval it changes nothing that a training computes.
    """
    target = target_with(context, endpoint) if endpoint is not None else Target.of(context)
    words = ["--port", str(port), *["--allow-eval"] * allow_eval]
    words += ["--timeout", str(target.limit_s), "--", *target.endpoints]
    token = {} if target.token is None else {"PROBING_TOKEN": target.token}
    become("probing.web", *words, **limited_memory.ENVIRONMENT, **token)
