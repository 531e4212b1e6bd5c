"""`probing diff`: what is not the same on all ranks of a job, or in two runs of a script."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ...errors import UsageError
from ..ask.replies import fitted, write_answer
from ..command import AskCommand
from ..completion import complete_endpoint_option
from ..options import style_option, watch_option
from ..output import terminal
from ..preferences import endpoints_named
from ..target import FINDING_S, Target, asked_target, target_options

if TYPE_CHECKING:
    from ...diagnosis.doctor.findings import Finding
    from ...diagnosis.runs.comparison import RunComparison

_JSON = ("rule", "certainty", "summary", "since_step", "evidence", "next", "fix")


@click.command("diff", cls=AskCommand)
@click.argument("runs", nargs=-1, metavar="[RUN] [RUN]", shell_complete=complete_endpoint_option)
@target_options
@click.option(
    "--parameters/--no-parameters", default=True, show_default=True,
    help="Of ranks: compare checksums of parameters, for which each rank holds its training.",
)  # fmt: skip
@watch_option()
@style_option("text", "json", "markdown")
@click.pass_context
def command(context: click.Context, *, runs: tuple[str, ...], parameters: bool, style: str) -> None:
    """Show what differs between two runs of a script, or between the ranks of a job.

    `probing diff RUN RUN` compares the second run with the first; a RUN is a pid or run folder,
    live or ended. Compared from the record are the set-up (python.environment), speed by phase and
    module, memory, and losses at the same steps; the likeliest explanation comes first. A step's
    level is the median of the means of 8 consecutive steps, its 99 % interval by a moving block
    bootstrap, without the first steps and those with a checkpoint, after an evaluation or under a
    question.

    `probing -t all diff` compares ranks, the odd ones first: checksums of each parameter after the
    same step, settings and python.environment. Shards are left out; of a secret only that it
    differs.
    """
    if runs:
        _compare_runs(_two_runs(Target.of(context), runs), Target.of(context), style)
        context.exit()
    if style == "markdown":
        raise UsageError("Markdown is for runs: `probing diff RUN RUN --format markdown`.")
    _compare_ranks(context, parameters=parameters, style=style)


def _two_runs(target: Target, runs: tuple[str, ...]) -> tuple[str, str]:
    """The first run and the second, however they were written.

    Raises:
        UsageError: They are not two.
    """
    words = (*target.endpoints, *(word for run in runs for word in endpoints_named(run)))
    if len(words) != 2:
        named = f"{len(words)} {'was' if len(words) == 1 else 'were'}"
        raise UsageError(
            f"two runs are compared, but {named} named.",
            help="For example: `probing diff 4242 5353`; `probing list --dead` shows those that"
            " have ended, too.",
        )
    return words[0], words[1]


def _compare_runs(names: tuple[str, str], target: Target, style: str) -> None:
    from ...diagnosis.runs.reading import compare_members, find_run

    limit_s = min(FINDING_S, target.limit_s)
    before = find_run(names[0], token=target.token, timeout_s=limit_s)
    after = find_run(names[1], token=target.token, timeout_s=limit_s, rank=before.rank)
    compared = compare_members(
        before, after, names=names, token=target.token, timeout_s=target.limit_s
    )
    write_comparison(compared, names, style)


def write_comparison(
    compared: RunComparison, names: tuple[str, str], style: str, *, command: str = "probing diff"
) -> None:
    """Print what differs between two runs.

    Args:
        names: What the user calls them.
        style: text, json or markdown.
        command: What compares them.
    """
    from ...diagnosis.doctor.against import findings_of
    from ..render.ranks.runs import markdown_comparison, plain_comparison, render_comparison

    findings = findings_of(compared, names, command=command)
    write_answer(
        compared,
        style,
        fitted(render_comparison, findings=findings),
        lambda compared: {"findings": [*map(_plain, findings)], **plain_comparison(compared)},
        markdown=lambda compared: markdown_comparison(compared, findings),
        wraps=True,
    )
    terminal.flush()


def _plain(finding: Finding) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(finding).items() if name in _JSON}


def _compare_ranks(context: click.Context, *, parameters: bool, style: str) -> None:
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
    write_answer(
        compared,
        style,
        lambda compared, screen: render_differences(compared, color=screen.color),
        lambda compared: {"odd": compared.odd, **dataclasses.asdict(compared)},
        wraps=True,
    )
    tell_outcomes(outcomes)
    terminal.flush()
    context.exit(exit_code(outcomes))
