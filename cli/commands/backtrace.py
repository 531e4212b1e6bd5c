"""`probing ENDPOINT backtrace`: where every thread is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ..ask.replies import Replies, show, tell_notes
from ..command import AskCommand
from ..options import style_option, watch_option
from ..output import terminal
from ..render.process.stacks import render_backtrace, render_folded
from ..target import Target, asked_target, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.common import Backtrace
    from ..output.terminal import Screen


@click.command("backtrace", cls=AskCommand)
@target_options
@click.option("--native", is_flag=True, help="Show C functions, too; this pauses the process.")
@click.option("--locals", "with_locals", is_flag=True, help="Show local variables.")
@click.option("--each", is_flag=True, help="Of several processes, show one after the other.")
@click.option("--lines", is_flag=True, help="Of several, tell stacks at different lines apart.")
@click.option(
    "--snapshots", type=click.IntRange(1, 60), default=1, show_default=True, metavar="N",
    help="Look so many times, a second apart, to tell what is stuck from what moves.",
)  # fmt: skip
@watch_option()
@style_option("text", "json", "folded")
@click.pass_context
def command(
    context: click.Context,
    *,
    native: bool,
    with_locals: bool,
    each: bool,
    lines: bool,
    snapshots: int,
    style: str,
) -> None:
    """Show the stack of every thread, and what it waits for.

    Innermost frame last, as in a traceback, and the main thread last. Runs of frames of torch and
    the standard library are one line each, and so are idle threads; -v shows all. When the process
    does not answer, stacks are read from outside; of an ended process the last known ones are
    shown. `folded` is for flame graph tools: one line per stack.

    Equal stacks of several processes are shown once, with their ranks, the odd ones first, without
    idle pool threads.
    """
    target = asked_target(context)
    is_merged = snapshots > 1 or lines or not (each or with_locals or target.is_single)
    if is_merged and (each or with_locals):
        option = "--each" if each else "--locals"
        raise UsageError(
            f"{option} shows processes one by one; --snapshots and --lines merge them.",
            help=f"Leave out {option}, or the others.",
        )
    if is_merged:
        code = _show_merged(target, style, native=native, lines=lines, looks=snapshots)
    else:
        code = _show_one_by_one(target, style, native=native, with_locals=with_locals)
    terminal.flush()
    context.exit(code)


def _show_one_by_one(target: Target, style: str, *, native: bool, with_locals: bool) -> int:

    def ask(process: Process) -> Backtrace:
        return process.backtrace(native=native, locals=with_locals)

    if style != "folded":
        return show(target, style, ask, _render)
    replies = Replies(target, ask)
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        root = () if target.is_single else (reply.endpoint,)
        terminal.write(render_folded(reply.value, root=root))
    return replies.exit_code


def _render(found: Backtrace, screen: Screen) -> str:
    return render_backtrace(found, is_whole=terminal.ways.verbose, color=screen.color)


def _show_merged(target: Target, style: str, *, native: bool, lines: bool, looks: int) -> int:
    from ...cluster.ranks.question import gather_stacks
    from ...cluster.ranks.stack_classes import merge_stacks
    from ..ask.many import tell_coverage
    from ..ask.ranks import asking_of, exit_code
    from ..render.ranks.stack_classes import render_folded_classes, render_stack_classes

    stacks, outcomes = gather_stacks(asking_of(target), looks=looks, native=native)
    merged = merge_stacks(stacks, looks=looks, by_line=lines, native=native)
    if style == "json":
        terminal.write_json(dataclasses.asdict(merged))
    elif style == "folded":
        terminal.write(render_folded_classes(merged))
    else:
        terminal.write(render_stack_classes(merged, color=terminal.screen().color))
    tell_coverage(outcomes)
    return exit_code(outcomes)
