"""`probing run SCRIPT`: start a training with the agent inside."""

from __future__ import annotations

import os
import shutil
import sys

import click

from ...errors import UsageError
from ...safety.off_switch import is_off
from ..command import AskCommand
from ..options import tls_options
from ..output import terminal
from ..target import refuse_target

_OWN_OPTIONS_WITH_VALUE = frozenset({"--listen", "--tls-cert", "--tls-key"})


class RunCommand(AskCommand):
    """A command that leaves everything from the script's name on to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our options up to the first word, or ``-m``."""
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] != "-m":
            index += 2 if args[index] in _OWN_OPTIONS_WITH_VALUE else 1
        return super().parse_args(ctx, [*args[:index], "--", *args[index:]])


@click.command("run", cls=RunCommand)
@click.option(
    "--listen", metavar="HOST:PORT", help="Listen on TCP, too; the same as PROBING_LISTEN."
)
@tls_options
@click.option(
    "--allow-eval", is_flag=True,
    help="Run code that comes over TCP; the same as PROBING_ALLOW_EVAL=1.",
)  # fmt: skip
@click.argument("words", nargs=-1, required=True, metavar="SCRIPT|-m MODULE [ARGS]...",
                type=click.UNPROCESSED)  # fmt: skip
@click.pass_context
def command(
    context: click.Context, /, *, words: tuple[str, ...], allow_eval: bool, **options: str | None
) -> None:
    """Run a script with the agent inside.

    The same as PROBING=1 python SCRIPT ARGS, also where the package's start-up hook is not
    installed. Everything after the name belongs to the script.
    """
    refuse_target(context)
    _check(words)
    env = dict(os.environ)
    if env.get("PROBING", "").strip().lower() != "all":
        env["PROBING"] = "1"
    given = {f"PROBING_{name}".upper(): word for name, word in options.items() if word is not None}
    env.update(given, **({"PROBING_ALLOW_EVAL": "1"} if allow_eval else {}))
    if is_off(env):
        terminal.note("PROBING_DISABLE is set: the script runs without an agent.")
    terminal.go_live()
    terminal.flush()
    os.execve(  # noqa: S606  the script takes the place of this process
        sys.executable, [sys.executable, "-m", "probing._run", *words], env
    )


def _check(words: tuple[str, ...]) -> None:
    """Make sure that there is something to run.

    Raises:
        UsageError: There is not.
    """
    name = words[0]
    if name == "-m":
        if len(words) == 1:
            raise UsageError("-m needs the name of a module.")
        return
    if os.path.exists(name):
        return
    if shutil.which(name):
        raise UsageError(
            f"{name} is a program; run takes a Python script, or -m and a module.",
            help=f"`PROBING=1 {name} ...` puts the agent into the Python processes it starts.",
        )
    raise UsageError(f"there is no script {name}.")
