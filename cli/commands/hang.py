"""`probing -t all hang`: why a job does not go on, and which rank is to blame."""

from __future__ import annotations

import dataclasses

import click

from ..ask.many import membership_of
from ..command import AskCommand
from ..options import limit_option, style_option, watch_option
from ..output import terminal
from ..target import asked_target, target_options

_CODES = {"fine": 0, "hang": 1, "crashed": 6, "slow": 7}
"""What `--check` ends with; 2 to 5 say that the question itself failed."""
_GRAVEST_FIRST = ("hang", "crashed", "slow")


@click.command("hang", cls=AskCommand)
@target_options
@click.option("--check", is_flag=True, help="Exit with 1 for a hang, 6 for a crash, 7 if slow.")
@limit_option("How many ranks to name", default=8, former="--rows")
@watch_option()
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, check: bool, limit: int, style: str) -> None:
    """Say why a job hangs, which rank is the cause, and where that rank is.

    Looks twice at each rank's record, a second apart, and once at its stack, in whatever state it
    is. It issues no collectives and needs no rank's help. A hang takes 10 s without progress, or
    five median steps, unless the cause is certain. A rank that writes, reads or computes meanwhile
    is slow.

    The exit code is 0. With `--check`: 0 all is well, 1 a hang, 6 a crash, 7 a slow job; of several
    jobs, the gravest in the order 1, 6, 7.
    """
    from ...diagnosis.hang.diagnosis import diagnose
    from ..render.ranks.hang import render_verdicts

    target = asked_target(context)
    membership = membership_of(target)
    verdicts = diagnose(
        membership.members, timeout_s=target.limit_s, token=target.token, asked=target.words
    )
    if style == "json":
        plain = [dataclasses.asdict(verdict) for verdict in verdicts]
        shown = plain[0] if len(plain) == 1 else plain
        terminal.write_json(shown)
    else:
        width = terminal.screen().width
        terminal.write(render_verdicts(verdicts, width=width, most=limit, asked=target.words))
    outcomes = {verdict.outcome for verdict in verdicts}
    gravest = next((name for name in _GRAVEST_FIRST if name in outcomes), "fine")
    context.exit(_CODES[gravest] if check else 0)
