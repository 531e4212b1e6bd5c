"""`probing ENDPOINT repl`: a Python prompt in the process."""

from __future__ import annotations

import sys

import click

from ...errors import UsageError
from ..command import AskCommand
from ..output import terminal
from ..target import asked_target, attach_option, target_options


@click.command("repl", cls=AskCommand)
@target_options
@attach_option
@click.pass_context
def command(context: click.Context) -> None:
    """Open a Python prompt in the process.

    Lines run as by `eval`. Assigned names stay until it ends, and _ is the last value. `%help`
    shows what else there is: `%sql`, `%bt`, `%who`, `%jobs`. Without a terminal, lines of standard
    input are run in turn, with exit code 1 when any failed.
    """
    from ..prompt.prompt import PlainReader, Prompt, Reader

    target = asked_target(context)
    if not target.is_single:
        raise UsageError("a prompt is one process's; name one endpoint.")
    process = target.connect(target.endpoints[0])
    process.jobs()  # nobody should type a page before it is known that nobody answers
    terminal.go_live()
    prompt = Prompt(target, process)
    reader: Reader = PlainReader()
    if sys.stdin.isatty() and sys.stdout.isatty():
        from ..prompt.prompt_reader import TerminalReader

        reader = TerminalReader(process, prompt.session)
        terminal.tell(f"Python in {process.label}. %help shows what there is; Ctrl-D leaves.")
    context.exit(prompt.run(reader))
