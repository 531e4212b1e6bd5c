"""What `memory --record` and `memory --snapshot` do.

Rules of this file: imported by the command `memory`. The file is written here, whole or not at all,
with the rights of the person who asks; no two processes write the same one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import click

from ...errors import UsageError
from ...messages.common import MOST_STEPS
from ..ask.replies import Replies, tell_notes, telling
from ..options import together
from ..output import terminal
from ..target import Target

if TYPE_CHECKING:
    from ...allocations import Recording
    from ...client.base import Process
    from ...messages.card import Card


def change_recordings(target: Target, state: str, steps: int | None) -> int:
    """Turn recording on or off everywhere, and say how it stands.

    Returns:
        The exit code.
    """
    from ..render.memory.recording import render_status

    replies = Replies(target, lambda process: process.record_allocations(state, steps=steps))
    for reply in replies:
        tell_notes(target, reply.endpoint, reply.notes)
        label = "" if target.is_single else f"{reply.endpoint}: "
        terminal.write(f"{label}{render_status(reply.value)}")
    return replies.exit_code


class Awaited(NamedTuple):
    """What a snapshot waits for.

    Attributes:
        step: The step that is to be recorded.
        condition: Of SQL, over the columns of python.steps: of a step that has ended.
    """

    step: int | None = None
    condition: str | None = None


def take_snapshots(target: Target, given: str, steps: int | None, awaited: Awaited) -> int:
    """Write what was recorded to a file, and show the most of it.

    Args:
        given: A file; or a folder, for a file of a name of its own in it, as there is also where
            there are several processes.

    Returns:
        The exit code.
    """
    from ...allocations import write_snapshot
    from ..output.files import write_file
    from ..render.memory.recording import render_recording

    def ask(process: Process) -> tuple[Recording, Card]:
        return _snapshot(process, target, steps, awaited), process.status()

    replies = Replies(target, ask)
    for reply in replies:
        recording, card = reply.value
        cut = (recording.cut,) if recording.cut else ()
        tell_notes(target, reply.endpoint, (*reply.notes, *cut))
        path = file_for(given, recording, card, is_single=target.is_single)
        write_file(path, [write_snapshot(recording)])
        screen = terminal.screen()
        terminal.write(render_recording(recording, width=screen.width, color=screen.color))
        terminal.tell(f"written to {path}")
    return replies.exit_code


def file_for(given: str, recording: Recording, card: Card, *, is_single: bool) -> str:
    """The file that a process's snapshot goes to: its own, whoever else writes there.

    Raises:
        UsageError: There is no such folder.
    """
    host = quote(card.host, safe="")
    rank = "" if card.rank is None else f"-rank{card.rank}"
    step = f"-step{recording.marks[-1][0]}" if recording.marks else ""
    own = f"-{host}{rank}-pid{card.pid}{step}"
    path = Path(given)
    if given.endswith(os.sep) and not path.is_dir():
        raise UsageError(f"there is no folder {given}.")
    if path.is_dir():
        return str(path / f"memory{own}.pickle")
    if is_single:
        return given
    return str(path.with_name(f"{path.stem}{own}{path.suffix or '.pickle'}"))


def _snapshot(process: Process, target: Target, steps: int | None, awaited: Awaited) -> Recording:
    """The recording, and meanwhile how far it is."""
    from ..render.memory.recording import render_progress

    with telling(target, render_progress) as tell:
        first = _wait(process, target, awaited)
        count = 1 if first is not None and steps is None else steps
        return process.snapshot(
            steps=count, timeout_s=target.timeout_s, tell=tell, first_step=first
        )


def _wait(process: Process, target: Target, awaited: Awaited) -> int | None:
    """Wait for what a snapshot waits for; returns the first step that is to be recorded.

    An accelerator's allocator keeps a history, which must be on before what it is to show.
    """
    from ...diagnosis.awaited_steps import wait_for_condition, wait_until_before

    def tell(step: int) -> None:
        if target.is_single:
            terminal.progress(f"step {step}: waiting")

    if awaited.step is None and awaited.condition is None:
        return None
    on_device = bool(process.query(_ON_DEVICE).to_pylist()[0]["n"])
    if on_device:
        process.record_allocations("on")
    if awaited.condition is not None:
        wait_for_condition(process, awaited.condition, tell=tell)
        return None
    assert awaited.step is not None
    if on_device:
        wait_for_condition(process, f"step >= {awaited.step}", tell=tell)
        return None
    wait_until_before(process, awaited.step, timeout_s=target.limit_s, tell=tell)
    return awaited.step


_ON_DEVICE = "SELECT count(*) AS n FROM python.memory WHERE allocated_bytes IS NOT NULL"
recording_options = together(
    click.option(
        "--record",
        type=click.Choice(["on", "off"]),
        help="Begin or end to record every allocation with its stack.",
    ),
    click.option(
        "--snapshot",
        metavar="FILE",
        help="Write what was recorded, or else record some steps first. A folder gets a file with"
        " a name of its own.",
    ),
    click.option(
        "--at-step",
        "at_step",
        type=click.IntRange(min=0),
        metavar="N",
        help="With --snapshot: wait for that step, and record it.",
    ),
    click.option(
        "--when",
        metavar="CONDITION",
        help="With --snapshot: wait for a step that meets it, in SQL over python.steps, as 'loss"
        " > 10'.",
    ),
    click.option(
        "--steps",
        type=click.IntRange(1, MOST_STEPS),
        help="How many steps to record on the CPU.  [default: 10, or 3 for a snapshot of its own]",
    ),
)
