"""`probing ENDPOINT arm`: record in the next steps what is not recorded all the time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ...messages.common import ARMABLE, MOST_STEPS, ArmedAnswer
from ..ask.replies import show, telling
from ..command import AskCommand
from ..options import style_option
from ..output import terminal
from ..target import Target, asked_target, attach_option, changed_target, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.arming import Watch
    from ..output.terminal import Screen


@click.command("arm", cls=AskCommand)
@target_options
@attach_option
@click.argument("what", type=click.Choice(ARMABLE), required=False)
@click.option(
    "--steps", type=click.IntRange(1, MOST_STEPS), default=20, show_default=True,
    help="How many training steps to watch at most.",
)  # fmt: skip
@click.option("--no-wait", is_flag=True, help="Arm it, and return at once.")
@click.option("--off", is_flag=True, help="End what is armed.")
@style_option("text", "json")
@click.pass_context
def command(
    context: click.Context,
    *,
    what: str | None,
    steps: int,
    no_wait: bool,
    off: bool,
    style: str,
) -> None:
    """Record in the next training steps what is not recorded all the time.

    `arm nan` finds the first module that makes values which are not finite, forwards or backwards,
    within --steps steps; or says that the weights were not finite before, and since when. The rows
    stay in python.numerics. Each look waits for the device, so steps are slower; numbers stay the
    same.

    `arm gradients` writes python.gradients, `arm leak` watches as `leak` does. `arm` alone shows
    what is armed. Ctrl-C ends it; --timeout is the time for one step.
    """
    target = asked_target(context) if what is None else changed_target(context)
    if what is None and (off or no_wait):
        raise UsageError(f"say what: `arm {' | '.join(ARMABLE)}`.")
    if what == "nan" and not (off or no_wait):
        context.exit(_watch(target, steps, style))
    asked = 0 if off else steps

    def ask(process: Process) -> ArmedAnswer:
        return process.armed() if what is None else process.arm(what, asked)

    from ..render.training.numerics import render_armed

    context.exit(show(target, style, ask, lambda found, _: render_armed(found.armed)))


def _watch(target: Target, steps: int, style: str) -> int:
    """Wait for what is found, and show it."""
    from ...diagnosis.arming import watch_numbers
    from ..render.training.numerics import progress_of, render_finding

    def ask(process: Process) -> tuple[str, Watch]:
        with telling(target, progress_of) as tell:
            watch = watch_numbers(process, steps, timeout_s=target.limit_s, tell=tell)
        terminal.note(*watch.armed.notes)
        return process.label, watch

    def render(found: tuple[str, Watch], _: Screen) -> str:
        label, watch = found
        return render_finding(
            watch.armed,
            watch.rows,
            evidence=watch.evidence,
            endpoint=label,
            since=watch.since,
            restart=watch.restart,
        )

    return show(target, style, ask, render, lambda found: dataclasses.asdict(found[1]))
