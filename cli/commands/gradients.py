"""`probing ENDPOINT gradients`: the gradient of every parameter in the next steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...messages.common import MOST_STEPS
from ..ask.replies import show, telling
from ..command import AskCommand
from ..options import limit_option, style_option
from ..output import terminal
from ..target import asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.arming import Watch
    from ..output.terminal import Screen

_OTHER_LINES = 9
"""What stands above and below the rows."""


@click.command("gradients", cls=AskCommand)
@target_options
@attach_option
@click.option(
    "--steps", type=click.IntRange(1, MOST_STEPS), default=1, show_default=True,
    help="Of how many training steps.",
)  # fmt: skip
@limit_option(
    "How many parameters to show", default=None, former="--rows", shown="what fits the screen"
)
@style_option("table", "json")
@click.pass_context
def command(context: click.Context, *, steps: int, limit: int | None, style: str) -> None:
    """Show the gradient of every parameter in the next training steps.

    As the optimizer is about to use it: norm (also before clipping), largest value, NaN, infinite
    and zero elements, and how much the step changed the weights. Those that are not finite come
    first, then those of the last step, the largest first; last, the norm of all beside the steps
    before. The rows stay in python.gradients. The training waits for its device; Ctrl-C ends it.
    """
    from ...diagnosis.arming import sample_gradients
    from ..render.training.gradients import render_gradients
    from ..render.training.numerics import progress_of

    target = asked_target(context)

    def ask(process: Process) -> Watch:
        with telling(target, progress_of) as tell:
            watch = sample_gradients(process, steps, timeout_s=target.limit_s, tell=tell)
        terminal.note(*watch.armed.notes)
        return watch

    def render(watch: Watch, screen: Screen) -> str:
        if watch.armed.state == "failed":
            return f"the gradients could not be read: {watch.armed.reason}"
        return render_gradients(
            watch.rows,
            most=screen.rows_beside(_OTHER_LINES) if limit is None else limit,
            width=screen.width,
            color=screen.color,
            usual_norm=watch.usual_norm,
        )

    context.exit(show(target, style, ask, render))
