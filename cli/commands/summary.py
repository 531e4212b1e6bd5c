"""`probing ENDPOINT summary`: what the model is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..ask.replies import fitted, show
from ..command import AskCommand
from ..options import style_option, watch_option
from ..target import Target, asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.model_summary import Summary

_DEPTH = 3
_SHARE_OF_LIMIT = 0.8
"""How much of the time that the user gives is spent on waiting for the model's next call."""


@click.command("summary", cls=AskCommand)
@target_options
@attach_option
@click.option(
    "--depth", type=click.IntRange(min=0), default=_DEPTH, metavar="N", show_default=True,
    help="Show modules down to N levels below the root.",
)  # fmt: skip
@watch_option()
@style_option("table", "json", "markdown")
@click.pass_context
def command(context: click.Context, *, depth: int, style: str) -> None:
    """Show the model: its modules with parameters, shapes and FLOPs.

    Shapes and FLOPs are those of the model's next call in the training, left out when none comes
    within ten seconds, or four fifths of --timeout. `≥` stands before a sum that may be too small,
    since a module's own code may compute more than the layers in it whose formula is known.
    """
    target = asked_target(context)

    from ...diagnosis.model_summary import plain_summary
    from ..render.training.summary import render_summary, summary_markdown

    code = show(
        target,
        style,
        lambda process: _ask(process, target, depth),
        fitted(render_summary),
        plain_summary,
        markdown=summary_markdown,
        notes=lambda found: found.notes,
    )
    context.exit(code)


def _ask(process: Process, target: Target, depth: int) -> Summary:
    """Everything that is shown, with the part of the time that may be spent on waiting."""
    from ...diagnosis.model_summary import ask_for_summary

    given = target.timeout_s
    wait_s = None if given is None else given * _SHARE_OF_LIMIT
    return ask_for_summary(process, depth=depth, timeout_s=wait_s)
