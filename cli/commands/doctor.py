"""`probing ENDPOINT doctor`: what is wrong with a training, how sure that is, and what to do."""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from typing import TYPE_CHECKING

import click

from ...diagnosis.doctor.findings import CERTAINTIES, Finding
from ...errors import TimedOut, UsageError
from ...messages.limits import examined_s
from ..ask.replies import fitted, write_answer
from ..command import AskCommand
from ..options import limit_option, refuse_file, style_option, typed_option
from ..output import terminal
from ..target import FINDING_S, Target, target_options, target_with

if TYPE_CHECKING:
    from ...cluster.job.membership import Member
    from ...diagnosis.doctor.report import Report

_ORDER = tuple(CERTAINTIES)
_NUMBER = re.compile(r"\d+(?:\.\d*)?")
_LOOKED = 0.8
"""The part of the time that the looks have, where a comparison with an earlier run comes after."""
_LEAST_OF = 0.5
"""The looks have this part at least, however long the command took to start."""


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
    "--webhook-env", "variables", multiple=True, metavar="NAME",
    help="The same, at the address in an environment variable: others can read a command line.",
)  # fmt: skip
@click.option(
    "--run", "commands", multiple=True, metavar="COMMAND",
    help="With --watch: a command of the shell that gets each event as JSON on its input.",
)  # fmt: skip
@click.option(
    "--standing", metavar="FILE", default="",
    help="With --watch: a file that has, as JSON, what stands after each look.",
)  # fmt: skip
@style_option("text", "json", "markdown")
@click.pass_context
def command(
    context: click.Context, *, endpoint: str | None, check: str | None, limit: int,
    against: str | None, watch: bool, every: float, webhooks: tuple[str, ...],
    variables: tuple[str, ...], commands: tuple[str, ...], standing: str, style: str,
) -> None:  # fmt: skip
    """Say what is wrong with a training, since when, how sure that is, and what to do.

    Looks at everything on record and live, of one process or a whole job, dead or alive. It takes
    up to 20 s, up to 45 s where more wants to run than there are processors, or `--timeout`, and
    changes nothing; some gradients of the next three steps are looked at. What the record alone
    shows is judged first. Findings come first, the gravest first; then what is healthy; then what
    was not looked at, and why.

    `certain`: it is on record or was counted, and has no other reading. `likely`: healthy trainings
    do not look like this. `possible`: it stands out, and may be meant.

    `--against RUN` also compares with an earlier run of the same script; `probing diff RUN
    ENDPOINT` shows all of that.

    `--watch` goes on until Ctrl-C, or SIGTERM, after which it looks once more, or until what it
    watches has ended (`-t all` waits for new processes), and tells each likely or certain finding
    (`--check possible`: all) as it begins and as it ends, with `--format json` as a JSON object. It
    waits for no step: the rules that do are not judged, and it says at first which these are.

    The exit code is 0, with `--check likely` 1 on a finding that is likely or certain, and 5 where
    too little could be looked at in time.
    """
    from ...diagnosis.doctor.examine import examine
    from ..watch.watching import Seen, Wish, watch_and_tell

    _check(context, watch=watch, against=against, endpoint=endpoint)
    target = target_with(context, endpoint)
    seen = Seen()

    def look(within_s: float, *, is_thorough: bool) -> Report:
        return examine(
            seen.members_of(target),
            token=target.token,
            asked=_asked(target.endpoints),
            is_thorough=is_thorough,
            within_s=within_s,
        )

    if watch:
        wish = Wish(
            every_s=every, least=check or "likely", goes_on="all" in target.endpoints,
            is_json=style == "json", webhooks=webhooks, variables=variables, commands=commands,
            standing=standing,
        )  # fmt: skip
        told = watch_and_tell(lambda most: look(_whole_s(target, most), is_thorough=False), wish)
        context.exit(int(told and bool(check)))
    earlier = None if against is None else _member(against, target)  # before the looks take time
    end, part = _end(_whole_s(target)), 1.0 if earlier is None else _LOOKED
    report = look(part * (end - time.monotonic()), is_thorough=True)
    if earlier is not None and against is not None:
        report = _compared(report, earlier, against, target, end - time.monotonic())
    _show(report, style, limit)
    if check is not None:
        found = _is_found(report.findings, check)
        context.exit(int(found) or (TimedOut.exit_code if report.is_blind else 0))


def _check(
    context: click.Context, *, watch: bool, against: str | None, endpoint: str | None
) -> None:
    """Make sure that the options belong together.

    Raises:
        UsageError: They do not.
    """
    if watch and endpoint is not None and _NUMBER.fullmatch(endpoint) and Target.of(context).typed:
        raise UsageError(
            f"doctor --watch takes no number of seconds: how often it looks is --every {endpoint}.",
            help="Another process is asked, too, by a -t of its own.",
        )
    if watch and against is not None:
        raise UsageError("--against compares once, and --watch goes on: use one of them.")
    if watch:
        refuse_file(context, "--watch")
    elif (option := typed_option(context, "webhooks", "commands", "standing", "every")) is not None:
        raise UsageError(
            f"{option} needs --watch: without it doctor looks once, and tells nobody else."
        )


def _show(report: Report, style: str, limit: int) -> None:
    """Print it, in the style that was asked for."""
    from ...diagnosis.doctor.report import plain_report
    from ..render.process.doctor import markdown_report, render_report

    terminal.note(*report.notes)
    text = fitted(render_report, most=limit or None)
    write_answer(report, style, text, plain_report, markdown=markdown_report)
    terminal.flush()


def _member(word: str, target: Target, rank: int | None = None) -> Member:
    """The one process that is compared."""
    from ...diagnosis.runs.reading import find_run

    limit_s = min(FINDING_S, target.limit_s)
    return find_run(word, token=target.token, timeout_s=limit_s, rank=rank)


def _whole_s(target: Target, most_s: float = math.inf) -> float:
    """How long all of it takes at the most: as the user said, else as the machine is busy."""
    return min(examined_s() if target.timeout_s is None else target.timeout_s, most_s)


def _end(whole_s: float) -> float:
    """When the command has to have looked, by the monotonic clock; its own start counts, too."""
    from ...linux.process import age_s

    spent_s = age_s(os.getpid()) or 0.0
    return time.monotonic() + max(whole_s - spent_s, _LEAST_OF * whole_s)


def _compared(
    report: Report, earlier: Member, against: str, target: Target, left_s: float
) -> Report:
    """The report with what is worse than in an earlier run, where that is known in time."""
    from ...cluster.job.parallel import run_at_once
    from ...diagnosis.doctor.against import of_one_rank, with_comparison, without_comparison
    from ...diagnosis.runs.reading import compare_members

    word = target.endpoints[0]
    limit_s = max(left_s, 1.0)

    def compare() -> Report:
        member = _member(word, target, earlier.rank)
        names = against, word if len(target.endpoints) == 1 and word != "all" else member.endpoint
        compared = compare_members(
            earlier, member, names=names, token=target.token, timeout_s=limit_s
        )
        return of_one_rank(with_comparison(report, compared, names), member, against)

    done = run_at_once([compare], timeout_s=limit_s, at_once=1)[0]
    if done is None:
        return without_comparison(report, against, "no time was left")
    if done.value is None:
        assert done.error is not None
        raise done.error
    return done.value


def _asked(endpoints: tuple[str, ...]) -> str:
    """What stands before a command that asks the same."""
    if len(endpoints) == 1 and endpoints[0].isdecimal():
        return endpoints[0]
    return " ".join(f"-t {shlex.quote(word)}" for word in endpoints)


def _is_found(findings: tuple[Finding, ...], least: str) -> bool:
    """Whether there is a finding of that certainty or a surer one."""
    sure = _ORDER[: _ORDER.index(least) + 1]
    return any(finding.certainty in sure for finding in findings)
