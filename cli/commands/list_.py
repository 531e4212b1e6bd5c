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
@style_option("table", "json")
@click.pass_context
def command(context: click.Context, *, dead: bool, style: str) -> None:
    """List the processes with an agent.

    Shows pid, rank, state (training, idle, stopped, not answering, no agent, dead), the current
    training step, how long ago it began, and the command. A process is only asked whether it
    can answer; all else comes from its record.
    """
    refuse_target(context)
    from ...listing import list_processes

    processes = list_processes(dead=dead)
    if style == "json":
        shown = [dataclasses.asdict(process) for process in processes]
        terminal.write(json.dumps(shown, indent=2, ensure_ascii=False, default=str))
    elif processes:
        from ..render.processes import render_processes

        screen = terminal.screen()
        terminal.write(render_processes(processes, width=screen.width, color=screen.color))
    else:
        terminal.note(
            "no process with a probing agent was found; start one with PROBING=1 or `probing run`."
        )
    for process in processes:
        for problem in process.problems:
            terminal.note(f"process {process.pid}: {problem}")
