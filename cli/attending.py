"""What surrounds every command that a person may wait for.

Rules of this file: a sign of life, a pager for what is long, and Ctrl-C as the end of a wait: what
has come by then is shown, said to be a part, and the exit code is that of an interruption. A
verdict on a part would be none, and what is to happen on all ranks must not happen on some: only
commands of which each part stands for itself end so.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TypeVar

import click

from .output import terminal

T = TypeVar("T")

IN_PARTS = frozenset({
    "overview", "status", "backtrace", "dataloaders", "memory", "leak", "oom", "summary",
    "gradients", "arm", "labels", "query", "tables", "jobs", "list",
})  # fmt: skip
"""Commands that show what had come when they are interrupted."""
_PART = "interrupted: this is a part, from what had come by then"


def _paged() -> contextlib.AbstractContextManager[None]:
    """What shows a long answer; nothing where nobody looks, who need not pay for it."""
    if not sys.stdout.isatty():
        return contextlib.nullcontext()
    from .output.pager import paged

    return paged()


def show_help(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    """Show the help of a command, through a pager where it is longer than the screen."""
    if value and not ctx.resilient_parsing:
        with _paged():
            terminal.write(ctx.get_help())
        ctx.exit()


def attend(run: Callable[[], T], what: str, *, in_parts: bool) -> T:
    """Run a command.

    Args:
        in_parts: Whether what had come at Ctrl-C is shown.
        what: What is waited for, unless the command says it more closely.

    Raises:
        KeyboardInterrupt: Also after a part of the answer was shown.
    """
    from ..cluster.job.interruption import interruptible

    terminal.ways.awaited = [what]
    terminal.start_waiting()
    with interruptible(allowed=in_parts) as cut:
        try:
            with _paged():
                try:
                    result = run()
                finally:
                    terminal.stop_waiting()
                    if cut.happened:
                        terminal.tell(f"note: {_what_became()}")  # also to who wants no notes
        except click.exceptions.Exit:
            if not cut.happened:
                raise
    if cut.happened:
        raise KeyboardInterrupt
    return result


def _what_became() -> str:
    """What became of an answer that was interrupted: a file is there whole, or not at all."""
    output = terminal.ways.output
    return _PART if output is None else f"interrupted: {output} is not written: it would be a part"
