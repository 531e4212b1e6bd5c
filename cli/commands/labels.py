"""`probing ENDPOINT labels`: what the training is told to learn from the next batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..ask.replies import show
from ..command import AskCommand
from ..options import limit_option, style_option
from ..target import asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.about.labels import LabelsAnswer
    from ..output.terminal import Screen


@click.command("labels", cls=AskCommand)
@target_options
@attach_option
@limit_option(
    "How many samples to show token by token", default=2, former="--samples", most=64, none=True
)
@style_option("text", "table", "json")
@click.pass_context
def command(context: click.Context, *, limit: int, style: str) -> None:
    """Show tokens beside labels of the next batch that the training reads.

    Looks at the next batch of a DataLoader, or call of the model, that has tokens with a label
    each: how many labels are trained on and ignored (-100), samples that are ignored entirely, and
    whether labels are shifted. A tokenizer among the script's globals gives texts. `text` shows
    runs of labels, `table` every token.
    """
    from ..render.training.labels import render_label_table, render_labels

    target = asked_target(context)

    def ask(process: Process) -> LabelsAnswer:
        return process.labels(samples=limit, timeout_s=target.limit_s)

    def render(answer: LabelsAnswer, screen: Screen) -> str:
        if style == "table":
            return render_label_table(answer, width=screen.width, color=screen.color)
        return render_labels(answer, width=screen.width)

    context.exit(show(target, style, ask, render))
