"""`probing ENDPOINT backtrace`: where every thread is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .. import terminal
from ..asking import Replies, show_each, show_json, tell_notes
from ..render.stacks import render_backtrace, render_folded
from ..target import Target, asked_target, style_option, target_options

if TYPE_CHECKING:
    from ...client import Process
    from ...wire import Backtrace


@click.command("backtrace")
@target_options
@click.option("--native", is_flag=True, help="Show C functions, too; this pauses the process.")
@click.option("--locals", "with_locals", is_flag=True, help="Show local variables.")
@style_option("text", "json", "folded")
@click.pass_context
def command(context: click.Context, *, native: bool, with_locals: bool, style: str) -> None:
    """Show the stack of every thread, and what it waits for.

    The main thread comes first. Reads like a Python traceback: outermost frame first, the line
    being executed last. When the process does not answer, its stacks are read from outside, and
    the first line says so; of a process that has ended, the last that is known is shown. The
    format `folded` is the one that flame graph tools read: one line per stack.
    """
    target = asked_target(context)

    def ask(process: Process) -> Backtrace:
        return process.backtrace(native=native, locals=with_locals)

    if style == "json":
        code = show_json(target, ask, dataclasses.asdict)
    elif style == "folded":
        code = _show_folded(target, ask)
    else:
        code = show_each(target, ask, render_backtrace)
    terminal.flush()
    context.exit(code)


def _show_folded(target: Target, ask: Callable[[Process], Backtrace]) -> int:
    """Print the stacks of all endpoints, with the endpoint as root where there are several."""
    replies = Replies(target, ask)
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        root = () if target.is_single else (reply.endpoint,)
        terminal.write(render_folded(reply.value, root=root))
    return replies.exit_code
