"""`probing ENDPOINT jobs`: the code that is being run in the process by `eval`."""

from __future__ import annotations

import dataclasses

import click

from ...errors import UsageError
from ..ask.replies import show
from ..command import AskCommand
from ..options import limit_option, style_option, watch_option
from ..target import asked_target, target_options


@click.command("jobs", cls=AskCommand)
@target_options
@click.argument("action", type=click.Choice(["cancel"]), required=False)
@click.argument("number", type=click.IntRange(min=1), metavar="[ID]", required=False)
@limit_option("How many to show", default=0, shown="all")
@watch_option()
@style_option("text", "json")
@click.pass_context
def command(
    context: click.Context, *, action: str | None, number: int | None, limit: int, style: str
) -> None:
    """Show pending and running evals, or cancel one.

    Also those whose time is up, but which could not be interrupted in C code. `jobs cancel ID`
    interrupts one at its next line of Python. python.evals has all that ever were.
    """
    target = asked_target(context)
    if action is not None and number is None:
        raise UsageError("say which: `jobs cancel ID`; `jobs` shows the numbers.")

    from ..render.process.eval_jobs import render_jobs

    code = show(
        target,
        style,
        lambda process: process.jobs() if number is None else process.cancel(number),
        lambda answer, _: render_jobs(answer.jobs[: limit or None]),
        lambda answer: dataclasses.asdict(answer)["jobs"][: limit or None],
    )
    context.exit(code)
