"""`probing ENDPOINT profile`: what the time is spent on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ...messages.common import MOST_STEPS
from ..ask.replies import Replies, tell_notes
from ..command import AskCommand
from ..options import format_said, json_option, typed_option
from ..output import terminal
from ..output.files import write_file
from ..output.formats import PROFILE_FORMATS, choose_profile_format
from ..target import asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ..reports.profiling import Shown

_HIGHEST_HZ = 1000


@click.command("profile", cls=AskCommand)
@target_options
@attach_option
@click.option(
    "--steps", type=click.IntRange(1, MOST_STEPS), default=3, show_default=True,
    help="How many training steps to run torch.profiler for.",
)  # fmt: skip
@click.option(
    "--sampling", "hz", type=click.IntRange(1, _HIGHEST_HZ), metavar="HZ",
    help="Instead, sample the stacks of all threads from outside, so often per second.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=10, show_default=True,
    help="How long to sample; rounded up to whole seconds.",
)  # fmt: skip
@click.option("--idle", is_flag=True, help="Sample threads that wait, too.")
@click.option(
    "--format", "given", type=click.Choice(list(PROFILE_FORMATS)),
    help="How to write it.  [default: table, or what the file's suffix says]",
)  # fmt: skip
@json_option
@click.option("-o", "--output", metavar="FILE", help="Write to a file.")
@click.pass_context
def command(
    context: click.Context,
    *,
    steps: int,
    hz: int | None,
    seconds: float,
    idle: bool,
    given: str | None,
    output: str | None,
) -> None:
    """Show what the time of some training steps is spent on.

    torch.profiler runs for --steps steps in the training thread, from the end of the step in
    progress: kinds of work, operators and kernels, modules, and gaps; of an accelerator kernels by
    module, launches, and queues. The figures stay in python.kernels. Ctrl-C ends it with the step
    in progress. --timeout is the time for one step.

    --sampling HZ asks py-spy instead, for --seconds seconds: which Python code the threads are in.
    It needs no agent, and works on a hang.

    Formats: `chrome` for Perfetto and chrome://tracing, `speedscope` for speedscope.app,
    `pprof` (a file `.pb.gz`) for `go tool pprof`, `flamegraph.html` for a page of its own, `svg`
    for a picture. A file called `trace.json` is for Perfetto, another `.json` has the figures.
    """
    from ..reports.profiling import ask_for_samples, ask_for_steps

    target = asked_target(context)
    _check(context, is_sampled=hz is not None)
    form = choose_profile_format(format_said(context, given, output), output)
    if form == "pprof" and output is None:
        raise UsageError("a profile for pprof is no text: add -o FILE.pb.gz.")
    if output is not None and not target.is_single:
        raise UsageError("one file can take the profile of one endpoint only.")

    def ask(process: Process) -> Shown:
        if hz is None:
            return ask_for_steps(process, target, steps)
        as_timeline = form == "chrome"
        return ask_for_samples(process, target, seconds, hz, idle=idle, timeline=as_timeline)

    replies = Replies(target, ask)
    for reply in replies:
        tell_notes(target, reply.endpoint, (*reply.value.notes, *reply.notes))
        if output is not None:
            write_file(output, [_bytes(reply.value.render(form, terminal.PLAIN))])
            terminal.tell(f"written to {output}")
            continue
        if not target.is_single:
            terminal.write(f"== {reply.endpoint} ==")
        terminal.write(str(reply.value.render(form, terminal.screen())))
    context.exit(replies.exit_code)


def _check(context: click.Context, *, is_sampled: bool) -> None:
    """Make sure that the options are of the one profile or of the other.

    Raises:
        UsageError: They are not.
    """
    option = typed_option(context, *(("steps",) if is_sampled else ("seconds", "idle")))
    if option is not None and is_sampled:
        raise UsageError(f"{option} is of torch.profiler; --sampling goes on for --seconds.")
    if option is not None:
        raise UsageError(f"{option} needs --sampling HZ; torch.profiler runs for --steps.")


def _bytes(rendered: str | bytes) -> bytes:
    return rendered.encode() if isinstance(rendered, str) else rendered
