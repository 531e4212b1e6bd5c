"""`probing ENDPOINT export FOLDER`: keep what is on record in a folder of Parquet files."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import click

from ...errors import ProbingError, UsageError
from ..command import AskCommand
from ..options import style_option
from ..output import terminal
from ..target import Target, target_options

if TYPE_CHECKING:
    from pathlib import Path

    from ...cluster.job.membership import Member
    from ...history.export import Exported
    from ...rundir.folders import ProcessFolder


@click.command("export", cls=AskCommand)
@click.argument("words", nargs=-1, metavar="[RUN]... [FOLDER]")
@target_options
@click.option(
    "--project", metavar="NAME",
    help="What the runs belong to.  [default: the name of the script]",
)  # fmt: skip
@style_option("text", "json")
@click.pass_context
def command(
    context: click.Context, *, words: tuple[str, ...], project: str | None, style: str
) -> None:
    """Keep what is on record of processes, live or ended, in a folder of Parquet files.

    FOLDER is made if need be; PROBING_HISTORY names it where it is left out. Each row of a recorded
    table goes there once: the next export of the same process goes on where this one ended. Rows of
    a live process that may still change come with a later export, the last of them once it has
    ended. Files are read, and no process is asked. `probing history` asks what is there.
    """
    from ...history.export import history_folder

    target, place = _whom_and_where(Target.of(context), words)
    root = history_folder(place)
    done: list[Exported] = []
    code = 0
    for member in _members(target):
        try:
            done.append(_export(member, root, project))
        except ProbingError as error:
            terminal.complain(error, endpoint=member.name)
            code = code or error.exit_code
    _show(done, root, style)
    context.exit(code)


def _whom_and_where(target: Target, words: tuple[str, ...]) -> tuple[Target, str]:
    """The processes to export, and the folder.

    Raises:
        UsageError: One of them was not named.
    """
    from ...settings import Settings

    setting = Settings.from_env(os.environ).history
    is_named = bool(words) and (bool(target.endpoints) or len(words) > 1 or not setting)
    place = words[-1] if is_named else setting
    endpoints = (*target.endpoints, *(words[:-1] if is_named else words))
    if not endpoints:
        raise UsageError(
            "say which processes to export.",
            help="For example: `probing -t all export /shared/probing`; `probing list --dead` shows"
            " those that have ended, too.",
        )
    if not place:
        raise UsageError(
            "say where to export to.",
            help="For example: `probing -t all export /shared/probing`; or set PROBING_HISTORY.",
        )
    return dataclasses.replace(target, endpoints=endpoints), place


def _members(target: Target) -> tuple[Member, ...]:
    """The processes that the endpoints mean."""
    from ..ask.many import membership_of

    return membership_of(target).seen


def _export(member: Member, root: Path, project: str | None) -> Exported:
    """Export one process.

    Raises:
        ProbingError: It cannot be.
    """
    from ...history.export import export_process

    with terminal.waiting_for(f"exporting {member.name}"):
        return export_process(_folder_of(member), root, project=project)


def _folder_of(member: Member) -> ProcessFolder:
    """The run folder of a process.

    Raises:
        UsageError: It is another machine's.
        NotProbed: It has none.
    """
    from ...errors import NotProbed
    from ...reach.endpoint import Local, Stranger, resolve
    from ...rundir.folders import from_env

    if member.via is None:
        place = resolve(member.endpoint, from_env())
        if isinstance(place, Local):
            return place.folder
        if isinstance(place, Stranger):
            raise NotProbed(place.pid)
    raise UsageError(
        f"export reads files, and those of {member.name} are on another machine.",
        help="Run the command there.",
    )


def _show(done: list[Exported], root: Path, style: str) -> None:
    """Print what was exported."""
    if style == "json":
        terminal.write_json([dataclasses.asdict(one) for one in done])
        return
    from ..render.history.exported import render_exported

    if done:
        terminal.write(render_exported(done, str(root)))
    for one in done:
        for note in one.notes:
            terminal.note(f"{one.process}: {note}")
