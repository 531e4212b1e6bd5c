"""`probing`, without a word: the processes there are, and what to type."""

from __future__ import annotations

import click

from ..command import AskCommand
from ..output import terminal


@click.command("(none)", cls=AskCommand)
def command() -> None:
    """Show the processes there are, and how to go on."""
    from ...client.listing import list_processes
    from ..render.process.processes import render_processes

    processes = list_processes()
    screen = terminal.screen()
    if processes:
        terminal.write(render_processes(processes, width=screen.width, color=screen.color))
    who = str(processes[0].pid) if len(processes) == 1 else "PID"
    none = "no process with a probing agent was found\n\n"
    lines = (
        (f"probing {who}", "one of them on one screen"),
        (f"probing {who} doctor", "what is wrong with it, and what to do"),
        ("probing --help", "all commands"),
    )
    to_begin = (
        ("probing run train.py", "start a training with the agent inside"),
        ("probing attach PID", "put the agent into a running one: `probing list --all`"),
        ("probing --help", "all commands"),
    )
    chosen = lines if processes else to_begin
    width = max(len(command) for command, _ in chosen)
    told = "\n".join(f"{command:{width}}  {why}" for command, why in chosen)
    terminal.tell(f"\n{told}" if processes else f"{none}{told}")
