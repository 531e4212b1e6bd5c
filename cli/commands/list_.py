"""`probing list`: the processes there are."""

from __future__ import annotations

import dataclasses
import json

import click

from .. import terminal
from ..target import refuse_target, style_option, target_options


@click.command("list")
@target_options
@click.option("--dead", is_flag=True, help="Include processes that have ended.")
@click.option(
    "--all", "every", is_flag=True, help="Include the Python processes that have no agent."
)
@style_option("table", "json")
@click.pass_context
def command(context: click.Context, *, dead: bool, every: bool, style: str) -> None:
    """List the processes with an agent.

    Shows pid, rank, state (training, idle, stopped, not answering, attaching, no agent, dead), the
    current training step, how long ago it began, and the command. A process is only asked
    whether it can answer; all else comes from its record. With --all the Python processes without
    an agent follow: whether they have loaded torch, and whether `probing attach` would work.
    """
    refuse_target(context)
    from ...listing import list_processes

    processes = list_processes(dead=dead, every=every)
    if style == "json":
        shown = [dataclasses.asdict(process) for process in processes]
        terminal.write(json.dumps(shown, indent=2, ensure_ascii=False, default=str))
    elif processes:
        from ..render.processes import render_processes

        screen = terminal.screen()
        terminal.write(render_processes(processes, width=screen.width, color=screen.color))
    else:
        terminal.note(
            "no process with a probing agent was found; start one with PROBING=1 or `probing run`,"
            " or attach to one: `probing list --all` shows the Python processes."
        )
    for process in processes:
        for problem in process.problems:
            terminal.note(f"process {process.pid}: {problem}")
        if process.obstacle:
            terminal.note(process.obstacle)
