"""`probing serve`: answer for every process of this machine."""

from __future__ import annotations

import os
import sys

import click

from .. import terminal
from ..command import AskCommand
from ..target import refuse_target


@click.command("serve", cls=AskCommand)
@click.option(
    "--listen", metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one.  [default: 127.0.0.1:9741]",
)  # fmt: skip
@click.option(
    "--token-file", metavar="FILE",
    help="The file that holds the token; else PROBING_TOKEN, else one that is made.",
)  # fmt: skip
@click.option(
    "--tls-cert", metavar="FILE", help="The certificate to show; the same as PROBING_TLS_CERT."
)
@click.option("--tls-key", metavar="FILE", help="Its key; the same as PROBING_TLS_KEY.")
@click.option(
    "--allow-eval", is_flag=True,
    help="Run code that comes over TCP; the same as PROBING_ALLOW_EVAL=1.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, /, *, allow_eval: bool, **words: str | None) -> None:
    """Answer for every process of this machine.

    A node server: one process beside the trainings, which answers for all of them over TCP, so
    that they need neither port nor token. Its address stands for all of its processes: `probing -t
    node1:9741 backtrace`. What they have recorded it reads from their files, so it answers for one
    that hangs, is stopped or has ended, too; eval and live tables it passes on to their agents. It
    watches for stalls, see the table probing.stalls. Every request needs a token: that in the file
    node.token of the run directory may do everything, that in node.read_token may only read. It
    runs until Ctrl-C; the first agent of a machine starts one itself where PROBING_NODE=1 is set.
    """
    refuse_target(context)
    argv = [sys.executable, "-m", "probing.cluster.node"]
    for name, word in words.items():
        if word is not None:
            argv += [f"--{name.replace('_', '-')}", word]
    if allow_eval:
        argv.append("--allow-eval")
    env = {name: value for name, value in os.environ.items() if name != "PROBING"}
    terminal.flush()
    os.execve(sys.executable, argv, env)  # noqa: S606  the server takes the place of this process
