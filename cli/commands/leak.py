"""`probing ENDPOINT leak`: whether memory grows, which mistake it is, and what keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...diagnosis.leaks.growth import WAYS
from ...messages.common import MOST_STEPS
from ..ask.replies import fitted, show, telling
from ..command import AskCommand
from ..options import style_option
from ..output import terminal
from ..target import asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.leaks.report import LeakReport


@click.command("leak", cls=AskCommand)
@target_options
@attach_option
@click.option(
    "--steps", type=click.IntRange(1, MOST_STEPS), default=8, show_default=True,
    help="How many training steps to watch.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(WAYS), default=WAYS[0], show_default=True,
    help="How to add up what has grown.",
)  # fmt: skip
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, steps: int, by: str, style: str) -> None:
    """Show whether the training's memory grows, and what keeps it.

    As each of the next steps ends, every storage of every tensor is counted. What came in several
    steps and never went is shown with who refers to it, and common mistakes with what to write
    instead. Beside it stands the recorded series: flat, a staircase or a slope. --by module adds up
    storages by module; --by phase tells how much larger memory is at the end of each phase.

    What is kept once in many steps takes more --steps. The training is held for a moment at each;
    Ctrl-C ends it.
    """
    from ...diagnosis.memory.leaking import find_leaks
    from ..render.memory.leak import render_leak
    from ..render.training.numerics import progress_of

    target = asked_target(context)

    def ask(process: Process) -> LeakReport:
        with telling(target, progress_of) as tell:
            report = find_leaks(process, steps, timeout_s=target.limit_s, tell=tell, by=by)
        terminal.note(*report.notes)
        return report

    context.exit(show(target, style, ask, fitted(render_leak)))
