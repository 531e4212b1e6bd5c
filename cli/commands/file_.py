"""`probing file`: looks at files, and needs no process."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ..command import AskGroup
from ..options import style_option
from ..output import terminal
from ..target import refuse_target, target_options

if TYPE_CHECKING:
    from ...allocations import Recording


@click.group("file", cls=AskGroup, no_args_is_help=False)
@target_options
@click.pass_context
def command(context: click.Context) -> None:
    """Look at files that were written before; no process is asked."""
    refuse_target(context)


@command.command("memory-viz")
@click.argument("file")
@click.option("-o", "--output", metavar="PAGE", help="The page.  [default: FILE with .html]")
def memory_viz(*, file: str, output: str | None) -> None:
    """Draw a memory snapshot as a page that needs no network: what was in use, when, and by whom.

    FILE is a snapshot of `memory --snapshot` or of torch. It is read as data; a file that would run
    code is refused.
    """
    from ..output.files import write_file
    from ..render.memory.recording_page import render_page

    page = output or str(Path(file).with_suffix(".html"))
    if Path(page) == Path(file):
        raise UsageError("the page would take the place of the snapshot.", help="Name it with -o.")
    write_file(page, [render_page(_read(file), title=Path(file).name).encode()])
    terminal.tell(f"written to {page}")


@command.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
def diff(*, before: str, after: str) -> None:
    """Compare two memory snapshots: by category and by place in the program.

    Places are files and functions, without lines. The largest difference at the peak comes first.
    """
    from ...allocations import compare, shared_devices
    from ..render.memory.recording import render_difference

    screen = terminal.screen()
    both = _read(before), _read(after)
    names = (Path(before).name, Path(after).name)
    devices = shared_devices(*both)
    for device, *numbers in devices:
        if len(devices) > 1:
            terminal.write(f"== {device} ==")
        found = compare(*both, (numbers[0], numbers[1]))
        terminal.write(render_difference(found, names, width=screen.width, color=screen.color))


@command.command("checkpoint")
@click.argument("file")
@style_option("table", "json")
def checkpoint(*, file: str, style: str) -> None:
    """Show what is in a checkpoint: keys, shapes, dtypes, bytes, values that are not finite.

    FILE is any file of torch.save. It is read as data, without torch: nothing in it is run.
    """
    from ...diagnosis.checkpoints import read_checkpoint
    from ..render.training.checkpoint import render_checkpoint

    content = read_checkpoint(file)
    if style == "json":
        terminal.write(json.dumps(dataclasses.asdict(content), indent=2))
    else:
        terminal.write(render_checkpoint(content, width=terminal.screen().width))


def _read(file: str) -> Recording:
    """The recording in a file.

    Raises:
        UsageError: There is none.
    """
    from ...allocations import read_snapshot

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}.") from None
    return read_snapshot(data)
