"""`probing -t all stragglers`: which ranks hold up a job."""

from __future__ import annotations

import dataclasses

import click

from ..ask.replies import fitted, write_answer
from ..command import AskCommand
from ..options import renamed_option, style_option, watch_option
from ..output import terminal
from ..target import asked_target, target_options


@click.command("stragglers", cls=AskCommand)
@target_options
@click.option(
    "--steps", type=click.IntRange(3, 1000), default=20, show_default=True, metavar="N",
    help="Compare the last N steps.",
)  # fmt: skip
@renamed_option("--last", "--steps")
@watch_option()
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, steps: int, style: str) -> None:
    """Say which ranks hold up the others, and in what.

    Waiting ranks are no stragglers: compared is each rank's own time per step, without time blocked
    in collectives, and the order in which ranks enter collectives. A straggler's own time
    exceeds its cohort's in at least half of the steps. Clocks are aligned by the ends of
    collectives; nothing is sent between ranks. Where accelerators do the collectives, their clocks
    count.
    """
    from ...cluster.ranks.slow.gather_times import gather_times
    from ...cluster.ranks.slow.stragglers import find_stragglers
    from ..ask.ranks import asking_of, exit_code, tell_outcomes
    from ..render.ranks.stragglers import render_stragglers

    times, outcomes = gather_times(asking_of(asked_target(context)), last=steps)
    report = find_stragglers(times)
    write_answer(
        report,
        style,
        fitted(render_stragglers),
        lambda it: {"stragglers": [pace.rank for pace in it.stragglers], **dataclasses.asdict(it)},
        wraps=True,
    )
    tell_outcomes(outcomes)
    terminal.flush()
    context.exit(exit_code(outcomes))
