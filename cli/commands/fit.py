"""`probing ENDPOINT fit`: what memory another batch, length or depth would take."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ..ask.replies import fitted, show, telling
from ..command import AskCommand
from ..options import style_option
from ..output import terminal
from ..target import Target, asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.memory.fit_measured import MeasuredFit
    from ...messages.about.fit import FitAnswer, FitRequest, LargestFit

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@click.command("fit", cls=AskCommand)
@target_options
@attach_option
@click.option("--batch", type=click.IntRange(min=1), help="Samples in a micro-batch.")
@click.option("--seq", type=click.IntRange(min=1), help="Tokens in a sample.")
@click.option("--layers", type=click.IntRange(min=1), help="Identical blocks of the model.")
@click.option("--max", "largest", is_flag=True, help="Look for the largest batch that fits.")
@click.option(
    "--margin", type=click.FloatRange(0, 1, max_open=True), default=0.1, show_default=True,
    help="The share of the memory that --max leaves free.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE",
    help="Fit into so much, as 80GiB.  [default: what the process may have]",
)  # fmt: skip
@click.option(
    "--from-measured", "from_measured", is_flag=True,
    help="Scale what steps were measured to take; runs none of the model's code.",
)  # fmt: skip
@click.option(
    "--no-check", is_flag=True, help="On the CPU, record no step to check the prediction against."
)
@style_option("table", "json")
@click.pass_context
def command(
    context: click.Context,
    *,
    batch: int | None,
    seq: int | None,
    layers: int | None,
    largest: bool,
    margin: float,
    memory: str | None,
    from_measured: bool,
    no_check: bool,
    style: str,
) -> None:
    """Predict the memory of a step in another shape, without running it.

    The agent watches one step, copies the model and its optimizers without their data, and runs the
    step on the copy, with the training held for some seconds. The peak counts tensors, those that
    variables keep among them; what the process needs beside them is measured. The prediction for
    the present step is checked against a measured one.

    --max looks for the largest batch that fits, and shows how to keep the samples of a step by
    accumulating gradients.

    --from-measured is for models that cannot be copied, such as compiled or sharded ones: what a
    recorded step took is scaled with the batch.
    """
    target = asked_target(context)
    limit = None if memory is None else parse_size(memory, least=1)
    if largest and batch is not None:
        raise UsageError("--max looks for the batch itself; leave out --batch.")
    from ...messages.about.fit import FitRequest
    from ..render.memory.fit import render_fit, render_largest

    request = FitRequest(batch=batch, seq=seq, layers=layers, timeout_s=target.timeout_s)

    def predictor(process: Process) -> Callable[[FitRequest], FitAnswer]:
        return _predictor(process, target, from_measured=from_measured, checks=not no_check)

    def search(process: Process) -> LargestFit:
        return _largest(predictor(process), request, memory=limit, margin=margin)

    if largest:
        context.exit(show(target, style, search, fitted(render_largest)))
    draw = fitted(render_fit, limit_bytes=limit)
    context.exit(show(target, style, lambda process: predictor(process)(request), draw))


def _largest(
    predict: Callable[[FitRequest], FitAnswer],
    request: FitRequest,
    *,
    memory: int | None,
    margin: float,
) -> LargestFit:
    from ..reports.fitting import largest_of

    return largest_of(predict, request, memory=memory, margin=margin)


def _predictor(
    process: Process, target: Target, *, from_measured: bool, checks: bool
) -> Callable[[FitRequest], FitAnswer]:
    """What predicts: the process itself, or what was measured of it once."""
    from ..reports.fitting import checking

    if from_measured:
        return _measured(process, target).answer
    check = functools.partial(_checked, process, target) if checks else None

    def simulate(request: FitRequest) -> FitAnswer:
        if target.is_single and request.batch is not None:
            terminal.progress(f"simulating a batch of {request.batch:,}")
        try:
            return process.fit(request)
        finally:
            terminal.progress("")

    return checking(simulate, check)


def _checked(process: Process, target: Target, answer: FitAnswer) -> FitAnswer:
    """A prediction beside what a real step takes, and meanwhile how far that is."""
    from ...diagnosis.memory.fit_measured import checked
    from ..render.memory.recording import render_progress

    with telling(target, render_progress) as tell:
        return checked(process, answer, timeout_s=target.timeout_s, tell=tell)


def _measured(process: Process, target: Target) -> MeasuredFit:
    """What steps of a process take, and meanwhile how far that is."""
    from ...diagnosis.memory.fit_measured import measure
    from ..render.memory.recording import render_progress

    with telling(target, render_progress) as tell:
        return measure(process, timeout_s=target.timeout_s, tell=tell)


def parse_size(text: str, *, least: int = 0) -> int:
    """A size in bytes from what a person writes: ``80GiB``, ``80GB``, ``512M``.

    Args:
        least: The fewest bytes that make sense.

    Raises:
        UsageError: It is no size, or too small a one.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a size.", help="Write a number and a unit, as 80GiB or 512MiB."
        )
    number, unit, binary = match.groups()
    is_decimal = unit and not binary and text.strip().upper().endswith("B")
    base = 1000 if is_decimal else 1024
    size = int(float(number) * base ** _POWERS[unit.upper()])
    if size < least:
        raise UsageError(f"{text!r} is too small: {least} B is the least.")
    return size
