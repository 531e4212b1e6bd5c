"""`probing ENDPOINT memory`: where the memory is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ..ask.replies import fitted, show
from ..command import AskCommand
from ..options import limit_option, style_option, watch_of, watch_option
from ..reports.memory_cleaning import clean_and_show, cleaning_options, cleanings
from ..reports.memory_recording import Awaited, change_recordings, recording_options, take_snapshots
from ..target import Target, asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ...diagnosis.memory.memory_report import MemoryReport

_SHARE_OF_LIMIT = 0.4
"""How much of the time that the user gives is spent on waiting for the model's next step; twice
that with --theory."""
_TWO_COMMANDS = "`memory --record on`, and once something was recorded `memory --snapshot FILE`."


@click.command("memory", cls=AskCommand)
@target_options
@attach_option
@limit_option("How many of the largest tensors to name", default=10, former="--top", none=True)
@click.option(
    "--theory", is_flag=True,
    help="Put beside the activations what a transformer's should take by formula.",
)  # fmt: skip
@click.option(
    "--referrers", is_flag=True,
    help="Find what refers to the largest tensors, at the end of a step.",
)  # fmt: skip
@click.option(
    "--line", is_flag=True,
    help="Print one line, in the words of see_memory_usage; needs no help of the process.",
)  # fmt: skip
@watch_option(unless="line")
@cleaning_options
@recording_options
@style_option("table", "json", "markdown")
@click.pass_context
def command(
    context: click.Context,
    *,
    limit: int,
    theory: bool,
    referrers: bool,
    line: bool,
    gc: bool,
    empty_cache: bool,
    reset_peaks: bool,
    record: str | None,
    snapshot: str | None,
    at_step: int | None,
    when: str | None,
    steps: int | None,
    style: str,
) -> None:
    """Show where the memory is: parameters, gradients, activations and the rest.

    By who holds it, at the end of a step and as the next backward pass begins; the training is held
    for some tens of milliseconds at each. With a hundred thousand tensors or more it takes about
    half a second; the oldest that nothing uses are then left out, and counted in a note. Where no
    step comes within ten seconds, or two fifths of --timeout, it shows current memory.

    --record on records every allocation: an accelerator's allocator keeps the newest 100 000 events
    with Python stacks until --record off; on the CPU torch.profiler watches the next --steps steps.
    --snapshot FILE writes what was recorded, or else records --steps steps first, for
    https://pytorch.org/memory_viz and `probing file memory-viz`. --at-step N records that step;
    --when CONDITION waits for a step that meets it, and records the next, or writes an
    accelerator's history of before. python.alloc_events and python.alloc_blocks have the last
    recording.

    --gc, --empty-cache and --reset-peaks act at the end of a step: with --line, a line before and
    one after are printed, else the report follows.
    """
    target, watch = asked_target(context), watch_of(context)
    wanted = cleanings(gc=gc, empty_cache=empty_cache, reset_peaks=reset_peaks)
    awaited = Awaited(at_step, when)
    if record is not None or snapshot is not None or awaited != Awaited():
        if watch is not None:
            raise UsageError("--watch looks again and again, and memory is recorded once.")
        if wanted:
            raise UsageError(
                "memory is cleaned up by a command of its own, not by one that records."
            )
        context.exit(_record(target, record, snapshot, steps, awaited))
    if steps is not None:
        raise UsageError("--steps needs --record on or --snapshot FILE.")
    if line and style != "table":
        raise UsageError(
            f"--line prints text, and no {style}.",
            help='The same figures: `probing ENDPOINT query --format json "SELECT * FROM'
            ' python.memory ORDER BY seq DESC LIMIT 1"`.',
        )
    code = _clean(target, wanted, line=line, watch=watch)
    if not (line or code):
        code = _report(target, style, limit, theory=theory, referrers=referrers)
    context.exit(code)


def _report(target: Target, style: str, limit: int, *, theory: bool, referrers: bool) -> int:
    """Show where the memory is; returns the exit code."""
    from ..render.memory.report import memory_markdown, render_memory

    return show(
        target,
        style,
        lambda process: _ask(process, target, limit, theory=theory, referrers=referrers),
        fitted(render_memory),
        markdown=memory_markdown,
        notes=lambda report: report.notes,
    )


def _record(
    target: Target,
    record: str | None,
    snapshot: str | None,
    steps: int | None,
    awaited: Awaited,
) -> int:
    """Do what --record or --snapshot says."""
    if record is not None and snapshot is not None:
        raise UsageError("--record and --snapshot are two commands.", help=_TWO_COMMANDS)
    if awaited.step is not None and awaited.condition is not None:
        raise UsageError("--at-step and --when are two things to wait for.")
    if snapshot is None and awaited != Awaited():
        raise UsageError("--at-step and --when need --snapshot FILE.")
    if record is not None:
        return change_recordings(target, record, steps)
    return take_snapshots(target, snapshot or "", steps, awaited)


def _clean(target: Target, wanted: tuple[str, ...], *, line: bool, watch: float | None) -> int:
    """Do what comes before a report, or instead of it with --line."""
    if wanted and watch is not None:
        raise UsageError("memory is cleaned up once, not before every line: leave out --watch.")
    if wanted:
        return clean_and_show(target, wanted, out=line)
    if not line:
        return 0
    from ..reports.memory_line import show_line

    return show_line(target, every_s=watch)


def _ask(
    process: Process, target: Target, top: int, *, theory: bool, referrers: bool
) -> MemoryReport:
    from ...diagnosis.memory.memory_report import report_on

    given = target.timeout_s
    timeout_s = None if given is None else given * _SHARE_OF_LIMIT
    return report_on(process, top=top, theory=theory, referrers=referrers, timeout_s=timeout_s)
