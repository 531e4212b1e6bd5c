"""`probing ENDPOINT oom`: what was there when memory ran out, and what to do."""

from __future__ import annotations

import click

from ..ask.replies import fitted, show
from ..command import AskCommand
from ..options import limit_option, renamed_option, style_option, watch_option
from ..target import asked_target, target_options


@click.command("oom", cls=AskCommand)
@target_options
@click.option(
    "--seq", "number", type=click.IntRange(min=1), metavar="N",
    help="Of which error, by its `seq` in python.ooms.  [default: the last]",
)  # fmt: skip
@renamed_option("--number", "--seq")
@limit_option("How many of the calls before it to show", default=10, former="--rows")
@watch_option()
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, number: int | None, limit: int, style: str) -> None:
    """Show what was there when memory ran out, and what to do.

    What was asked for and free, in which phase, step and module, what tensors were used for, what
    grew before, and suggestions with their reasons, also for errors that the script survived. Of an
    ended process (its run folder) it also says whether the kernel OOM killer ended it, and what
    speaks for that.
    """
    from ...diagnosis.memory.out_of_memory import report_on
    from ..render.memory.oom import render_oom

    context.exit(
        show(
            asked_target(context),
            style,
            lambda process: report_on(process, number),
            fitted(render_oom, most=limit),
        )
    )
