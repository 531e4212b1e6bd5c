"""`probing file`: looks at files, and needs no process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from .. import terminal
from ..target import refuse_target, target_options

if TYPE_CHECKING:
    from ...allocations import Recording


@click.group("file", context_settings={"help_option_names": ["-h", "--help"]})
@target_options
@click.pass_context
def command(context: click.Context) -> None:
    """Look at files that were written before; no process is asked.

    \b
    Examples:
      probing file memory-viz memory.pickle -o memory.html
      probing file diff before.pickle after.pickle
    """  # noqa: D301 - click's mark for lines that stay as they are
    refuse_target(context)


@command.command("memory-viz")
@click.argument("file")
@click.option("-o", "--output", metavar="PAGE", help="The page.  [default: FILE with .html]")
def memory_viz(*, file: str, output: str | None) -> None:
    """Draw a memory snapshot as a page that needs no network: what was in use, when, and by whom.

    FILE is a snapshot of `memory --snapshot` or of torch's own. It is read as data: a file that
    would run code as it is opened is refused.
    """
    from ..output import write_file
    from ..render.memory_viz import render_page

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

    The places are files and functions, without lines, so that an edit of the program between the
    two does not matter. The largest difference at the peak comes first.
    """
    from ...allocations import compare
    from ..render.memory_recording import render_difference

    screen = terminal.screen()
    difference = compare(_read(before), _read(after))
    names = (Path(before).name, Path(after).name)
    terminal.write(render_difference(difference, names, width=screen.width, color=screen.color))


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
