"""`probing ENDPOINT backtrace`: where every thread is."""

from __future__ import annotations

import dataclasses
import linecache
from typing import TYPE_CHECKING

import click

from .. import terminal
from ..asking import show_each, show_json
from ..render.stacks import no_source, render_backtrace
from ..target import asked_target, style_option, target_options

if TYPE_CHECKING:
    from ...wire import Backtrace


@click.command("backtrace")
@target_options
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, style: str) -> None:
    """Show the stack of every thread.

    The main thread comes first. Reads like a Python traceback: outermost frame first, the line
    being executed last. When the process does not answer, its stacks are read from outside, and
    the first line says so.
    """
    target = asked_target(context)
    if style == "json":
        code = show_json(target, lambda process: process.backtrace(), dataclasses.asdict)
    else:
        code = show_each(target, lambda process: process.backtrace(), _render)
    terminal.flush()
    context.exit(code)


def _render(backtrace: Backtrace) -> str:
    # The agent sends the source lines along. Stacks taken from outside are of this machine.
    is_local = backtrace.source != "agent"
    return render_backtrace(backtrace, read_line=linecache.getline if is_local else no_source)
