"""What `memory --gc`, `--empty-cache` and `--reset-peaks` do.

Rules of this file: imported by the command `memory`. The process does the work at the end of a
step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..ask.replies import Replies, tell_notes
from ..options import together
from ..output import terminal

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.memory.memory_cleaning import Cleaned
    from ..target import Target


def cleanings(**wanted: bool) -> tuple[str, ...]:
    """The options that were given, as `clean_memory` takes them."""
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def clean_and_show(target: Target, wanted: tuple[str, ...], *, out: bool) -> int:
    """Clean up everywhere; print a line of before, one of after, and what was freed.

    Args:
        out: Whether these are the output; else only the last is told, beside what follows.

    Returns:
        The exit code.
    """
    from ...diagnosis.memory.memory_cleaning import clean_memory
    from ..render.memory.line import render_cleaned

    def ask(process: Process) -> Cleaned:
        return clean_memory(process, wanted, timeout_s=target.timeout_s)

    replies = Replies(target, ask)
    for reply in replies:
        tell_notes(target, reply.endpoint, [*reply.notes, *reply.value.notes])
        prefix = "" if target.is_single else f"{reply.endpoint}: "
        lines = render_cleaned(reply.value)
        if not out:
            terminal.note(f"{prefix}{lines[-1]}")
            continue
        for line in lines:
            terminal.write(f"{prefix}{line}")
    return replies.exit_code


cleaning_options = together(
    click.option(
        "--gc",
        is_flag=True,
        help="First collect garbage, at the end of a step, and tell what that freed.",
    ),
    click.option(
        "--empty-cache",
        is_flag=True,
        help="First free what is allocated and not in use: the accelerator's cache; on the CPU,"
        " what the C library holds.",
    ),
    click.option(
        "--reset-peaks",
        is_flag=True,
        help="Restart the device's peaks, also for the script.",
    ),
)
