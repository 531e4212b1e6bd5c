"""`probing ENDPOINT dataloaders`: who feeds the training, and who keeps it waiting."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from ..ask.replies import fitted, show
from ..command import AskCommand
from ..options import style_option, watch_option
from ..target import asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...diagnosis.dataloading import LoaderReport


@click.command("dataloaders", cls=AskCommand)
@target_options
@attach_option
@watch_option()
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, style: str) -> None:
    """Show the data loaders, their workers, and who keeps the training waiting.

    First, the share of the last 100 steps in which the training has waited for data.
    For every live iterator of a `torch.utils.data.DataLoader`: its settings, waits for batches, and
    each worker's pid, state, processor time and memory. For a batch waited for longer than a
    second, where the worker is whose turn it is.
    """
    from ...diagnosis.dataloading import report_on
    from ..render.training.dataloaders import render_loaders

    target = asked_target(context)
    context.exit(show(target, style, report_on, fitted(render_loaders), _plain))


def _plain(report: LoaderReport) -> Any:
    from ...diagnosis.dataloading import sentence_of

    stalls = [
        {
            "loader": stall.loader.loader,
            "sentence": sentence_of(stall),
            "worker": stall.worker.worker if stall.worker else None,
            "pid": stall.worker.pid if stall.worker else None,
            "stack": dataclasses.asdict(stall.stack) if stall.stack else None,
        }
        for stall in report.stalls
    ]
    return {
        "loaders": [dataclasses.asdict(loader) for loader in report.loaders],
        "stalls": stalls,
        "steps": report.steps,
        "wait_share": report.wait_share,
    }
