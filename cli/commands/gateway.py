"""`probing gateway`: Arrow Flight SQL over live processes and kept runs."""

from __future__ import annotations

import os

import click

from ...errors import UsageError
from ...settings import Settings
from ..command import AskCommand
from ..options import tls_options
from ..output.successor import become
from ..target import Target, target_options


@click.command("gateway", cls=AskCommand)
@click.argument("folder", required=False)
@target_options
@click.option(
    "--listen", metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one.  [default: 127.0.0.1:9742]",
)  # fmt: skip
@tls_options
@click.pass_context
def command(
    context: click.Context,
    *,
    folder: str | None,
    listen: str | None,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Serve Arrow Flight SQL: what ADBC, JDBC, DBeaver, Superset and notebooks connect to.

    One process beside the trainings, which need neither port nor token. -t says of which processes
    the live tables are, looked for again with each statement; FOLDER, or PROBING_HISTORY, where
    runs are kept. `FROM steps` is live, `FROM history.python.steps` kept; where only a history is
    served, its tables need no such name. Every table begins with whose its rows are: rank, host,
    pid and job. Only statements that read are run, four at a time, each within --timeout.

    A call needs a token, as bearer token or as the password of any user: that of --token-file or
    PROBING_TOKEN, else node.token or node.read_token of the run directory, as `probing serve` has
    them. It runs until Ctrl-C.
    """
    target = Target.of(context)
    place = folder or Settings.from_env(os.environ).history
    if not (place or target.endpoints):
        raise UsageError(
            "say what to serve.",
            help="`probing -t all gateway` serves live processes, `probing gateway FOLDER` the runs"
            " of a history.",
        )
    words = ["--timeout", str(target.limit_s)]
    given = {
        "listen": listen,
        "history": place,
        "tls-cert": tls_cert,
        "tls-key": tls_key,
        "token-in": target.token_file if target.token else None,
    }
    for name, word in given.items():
        if word:
            words += [f"--{name}", word]
    token = {} if target.token is None else {"PROBING_TOKEN": target.token}
    become("probing.gateway", *words, "--", *target.endpoints, **token)
