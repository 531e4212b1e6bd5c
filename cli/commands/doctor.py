"""`probing ENDPOINT doctor`: what is wrong with a training, how sure that is, and what to do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ...diagnosis.doctor.findings import CERTAINTIES
from ...errors import UsageError
from .. import terminal
from ..ask.many import membership_of
from ..command import AskCommand
from ..options import limit_option, style_option
from ..target import FINDING_S, Target, target_options, target_with

if TYPE_CHECKING:
    from ...cluster.job.membership import Member
    from ...diagnosis.doctor.examine import Report
    from ...diagnosis.doctor.findings import Finding

_ORDER = tuple(CERTAINTIES)
_JSON = ("rule", "certainty", "summary", "since_step", "evidence", "next", "fix", "source", "who")


@click.command("doctor", cls=AskCommand)
@click.argument("endpoint", required=False)
@target_options
@click.option(
    "--check", type=click.Choice(_ORDER), default=None, metavar="CERTAINTY",
    help="Exit with 1 on a finding that is at least so sure: certain, likely or possible.",
)  # fmt: skip
@limit_option("How many findings to show in full", default=5, former="--rows")
@click.option(
    "--against", metavar="RUN", default=None,
    help="Also say what is worse than in an earlier run, and why: a pid or a run folder.",
)  # fmt: skip
@click.option("--watch", is_flag=True, help="Go on, and tell what begins and what ends.")
@click.option(
    "--every", type=click.FloatRange(min=1.0), default=30.0, show_default=True, metavar="SECONDS",
    help="How often to look, with --watch.",
)  # fmt: skip
@click.option(
    "--webhook", "webhooks", multiple=True, metavar="URL",
    help="With --watch: where to post each event as JSON, as Slack or Alertmanager take it.",
)  # fmt: skip
@click.option(
    "--run", "commands", multiple=True, metavar="COMMAND",
    help="With --watch: a command of the shell that gets each event as JSON on its input.",
)  # fmt: skip
@style_option("text", "json", "markdown")
@click.pass_context
def command(
    context: click.Context, *, endpoint: str | None, check: str | None, limit: int,
    against: str | None, watch: bool, every: float, webhooks: tuple[str, ...],
    commands: tuple[str, ...], style: str,
) -> None:  # fmt: skip
    """Say what is wrong with a training, since when, how sure that is, and what to do.

    Looks at everything that is on record and live, of one process or a whole job, dead or alive:
    whether it goes on, the loss, gradients, parameters, data, memory, and where the time goes. It
    takes up to 20 s, or what `--timeout` says (longer on a busy machine, say), and changes nothing;
    some gradients of the next three steps are looked at. What was found comes first, the gravest
    first; then what is healthy; then what was not looked at, and why. The reference page of
    findings has every rule with its thresholds.

    `certain`: it is on record or was counted, and has no other reading. `likely`: healthy trainings
    do not look like this. `possible`: it stands out, and may be meant.

    With `--against RUN` it is also compared with an earlier run of the same script, live or ended:
    what is slower, takes more memory or has a higher loss, and what of the set-up explains it.
    `probing diff RUN ENDPOINT` shows all of that.

    With `--watch` it goes on until Ctrl-C, or until what it watches has ended (`-t all` waits for
    new processes), and tells each finding once as it begins and once as it ends, a line each (with
    `--format json` a JSON object): those that are likely or certain, unless `--check possible` asks
    for all. Only what needs no step of the training to be waited for is looked at then.

    Ends with 0, whatever it finds; with `--check likely`, with 1 on a finding that is likely or
    certain.
    """
    from ...diagnosis.doctor.examine import WHOLE_S, examine
    from ..ask.watching import Wish, watch_and_tell
    from ..render.process.doctor import markdown_report, render_report

    target = target_with(context, endpoint)
    if watch and against is not None:
        raise UsageError("--against compares once, and --watch goes on: use one of them.")
    within_s = WHOLE_S if target.timeout_s is None else target.timeout_s

    def look(*, is_thorough: bool) -> Report:
        members = membership_of(target).members
        return examine(
            members,
            token=target.token,
            asked=_asked(target.endpoints),
            is_thorough=is_thorough,
            within_s=within_s,
        )

    if watch:
        wish = Wish(
            every_s=every, least=check or "likely", goes_on="all" in target.endpoints,
            is_json=style == "json", webhooks=webhooks, commands=commands,
        )  # fmt: skip
        context.exit(int(watch_and_tell(lambda: look(is_thorough=False), wish) and bool(check)))
    earlier = None if against is None else _member(against, target)  # before the looks take time
    report = look(is_thorough=True)
    if earlier is not None and against is not None:
        report = _compared(report, earlier, against, target)
    for note in report.notes:
        terminal.note(note)
    if style == "json":
        terminal.write_json(_plain(report))
    elif style == "markdown":
        terminal.write(markdown_report(report))
    else:
        screen = terminal.screen()
        terminal.write(
            render_report(report, width=screen.width, color=screen.color, most=limit or None)
        )
    terminal.flush()
    context.exit(int(check is not None and _is_found(report.findings, check)))


def _member(word: str, target: Target, rank: int | None = None) -> Member:
    """The one process that is compared."""
    from ...diagnosis.runs.reading import find_run

    limit_s = min(FINDING_S, target.limit_s)
    return find_run(word, token=target.token, timeout_s=limit_s, rank=rank)


def _compared(report: Report, earlier: Member, against: str, target: Target) -> Report:
    """The report with what is worse than in an earlier run."""
    from ...diagnosis.doctor.against import with_comparison
    from ...diagnosis.runs.reading import compare_members

    word = target.endpoints[0]
    member = _member(word, target, earlier.rank)
    names = against, word if len(target.endpoints) == 1 and word != "all" else member.endpoint
    compared = compare_members(
        earlier, member, names=names, token=target.token, timeout_s=target.limit_s
    )
    return with_comparison(report, compared, names)


def _asked(endpoints: tuple[str, ...]) -> str:
    """What stands before a command that asks the same."""
    if len(endpoints) == 1 and endpoints[0].isdecimal():
        return endpoints[0]
    return " ".join(f"-t {word}" for word in endpoints)


def _is_found(findings: tuple[Finding, ...], least: str) -> bool:
    """Whether there is a finding of that certainty or a surer one."""
    sure = _ORDER[: _ORDER.index(least) + 1]
    return any(finding.certainty in sure for finding in findings)


def _plain(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    findings = [dataclasses.asdict(finding) for finding in report.findings]
    return {
        "findings": [{name: finding[name] for name in _JSON} for finding in findings],
        "healthy": list(report.healthy),
        "not_looked_at": [dataclasses.asdict(missed) for missed in report.not_looked_at],
        "about": report.about,
        "steps": report.steps,
        "seconds": round(report.seconds, 2),
    }
