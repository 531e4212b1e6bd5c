"""`probing -t all diff`: what is not the same on all ranks of a job."""

from __future__ import annotations

import dataclasses

import click

from .. import terminal
from ..target import asked_target, style_option, target_options


@click.command("diff")
@target_options
@click.option(
    "--parameters/--no-parameters", default=True, show_default=True,
    help="Compare checksums of parameters, for which each rank holds its training shortly.",
)  # fmt: skip
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, parameters: bool, style: str) -> None:
    """Show what differs between the ranks of a job, the odd ranks first.

    Compared are checksums of the bits of each parameter, taken by all ranks after the same step;
    settings, environment variables of torch, NCCL, CUDA, OpenMP and Python, versions of packages
    and switches of torch. Shards of a parameter differ by their nature and are left out. Of a
    secret no more is told than that it differs.
    """
    from ...cluster.ranks.differences import compare_facts
    from ...cluster.ranks.gather_facts import gather_facts
    from ...cluster.ranks.naming import rank_words
    from ..ask.ranks import asking_of, exit_code, tell_outcomes
    from ..render.ranks.differences import render_differences

    asking = asking_of(asked_target(context))
    told, outcomes = gather_facts(asking, with_parameters=parameters)
    compared = compare_facts([one.facts for one in told])
    for sentence in dict.fromkeys(note for one in told for note in one.notes):
        ranks = [one.facts.rank for one in told if sentence in one.notes]
        terminal.note(f"{rank_words(ranks)}: {sentence}")
    if style == "json":
        terminal.write_json({"odd": compared.odd, **dataclasses.asdict(compared)})
    else:
        terminal.write(render_differences(compared, color=terminal.screen().color))
    tell_outcomes(outcomes)
    terminal.flush()
    context.exit(exit_code(outcomes))
