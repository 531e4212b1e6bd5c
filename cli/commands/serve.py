"""`probing serve`: answer for every process of this machine."""

from __future__ import annotations

import click

from ..command import AskCommand
from ..options import tls_options
from ..output.successor import become
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
@tls_options
@click.option(
    "--allow-eval", is_flag=True,
    help="Run code that comes over TCP; the same as PROBING_ALLOW_EVAL=1.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, /, *, allow_eval: bool, **words: str | None) -> None:
    """Answer for every process of this machine.

    A node server: one process that answers over TCP for all trainings beside it, which need neither
    port nor token. Its address stands for all: `probing -t node1:9741 backtrace`. Records are read
    from files, also of a process that hangs or has ended; eval and live tables go to the agents. It
    watches for stalls (probing.stalls) and answers /metrics; PROBING_HISTORY has it keep all runs,
    PROBING_WATCH tell findings, PROBING_OTEL=1 send figures by OTLP. A token is needed: node.token
    of the run directory for everything, node.read_token for reading. It runs until Ctrl-C;
    PROBING_NODE=1 has the first agent of a machine start one.
    """
    refuse_target(context)
    options = ["--allow-eval"] * allow_eval
    for name, word in words.items():
        if word is not None:
            options += [f"--{name.replace('_', '-')}", word]
    become("probing.cluster.node", *options)
