"""`probing mcp`: coding agents ask by the Model Context Protocol."""

from __future__ import annotations

import click

from ..command import AskCommand
from ..output.successor import become


@click.command("mcp", cls=AskCommand)
@click.option("--allow-eval", is_flag=True, help="Let the agent run code in trainings.")
@click.option("--allow-act", is_flag=True, help="Let the agent change trainings, as `act` does.")
def command(*, allow_eval: bool, allow_act: bool) -> None:
    """Serve a coding agent on stdin and stdout: the commands as tools.

    An agent starts it, in your own shell and with your own rights; no training takes part. Its
    tools only look, unless you allow more. Needs `pip install 'probing-agent[mcp]'`.
    """
    words = ["--allow-eval"] * allow_eval + ["--allow-act"] * allow_act
    become("probing.mcp", *words)
