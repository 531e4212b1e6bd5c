"""`probing ENDPOINT report`: a run in one file."""

from __future__ import annotations

import re

import click

from ...errors import UsageError
from ..ask.replies import Replies, tell_notes
from ..command import AskCommand
from ..output import terminal
from ..output.files import write_file
from ..target import asked_target, attach_option, target_options


@click.command("report", cls=AskCommand)
@target_options
@attach_option
@click.option(
    "-o", "--output", metavar="FILE",
    help="Write to a file.  [default: probing-report-PID.html where stdout is a terminal]",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, *, output: str | None) -> None:
    """Write a page about a run into one file, to be sent to somebody or attached to an issue.

    Steps, the calls of the slowest step and of one that has not ended, findings, memory and the
    environment, drawn as by `probing web`; the file needs no server and asks nobody. It is of a
    process that runs, hangs or has ended, and of one that does not get on it has the stacks.

    The file holds the command line, names of modules, paths and settings of the run: look at it
    before you hand it on. Values of variables and arguments whose names say that they are secret
    are left out.
    """
    from ...page.report_file import report_file
    from ..reports.run.report import report_of

    target = asked_target(context)
    if not target.is_single:
        raise UsageError("a report is of one process.", help="Name one by its pid or run folder.")
    replies = Replies(target, report_of)
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        text = report_file(f"probing: {reply.value.title}", reply.value.record)
        place = output
        if place is None and terminal.screen().is_terminal:
            place = f"probing-report-{_named(reply.endpoint)}.html"
        if place is None:
            terminal.write(text)
        else:
            write_file(place, [text.encode()])
            terminal.tell(f"written to {place}")
    context.exit(replies.exit_code)


def _named(endpoint: str) -> str:
    """What a file is called that is about an endpoint."""
    return re.sub(r"[^\w.-]+", "-", endpoint).strip("-.")
