"""`probing ENDPOINT export FOLDER`: keep what is on record in a folder of Parquet files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ...errors import InternalError, ProbingError, StoreUnreachable, UsageError
from ..command import AskCommand
from ..history_words import keep_of, keep_options
from ..options import style_option
from ..output import terminal
from ..target import Target, target_options
from ..watch.ending import Ending

if TYPE_CHECKING:
    from ...cluster.job.membership import Member
    from ...history.compaction.keep import Keep
    from ...history.export import Exported
    from ...history.stores.place import Place
    from ...rundir.folders import ProcessFolder

_LEAST = 16
"""So many small files are put together after a round: not the same rows again and again."""


@click.command("export", cls=AskCommand)
@click.argument("words", nargs=-1, metavar="[RUN]... [FOLDER]")
@target_options
@click.option(
    "--project", metavar="NAME",
    help="What the runs belong to.  [default: the name of the script]",
)  # fmt: skip
@click.option(
    "--every", type=click.FloatRange(min=1.0), metavar="SECONDS",
    help="Export again every so often, and each process once more after its end, until Ctrl-C"
    " or, once more then, SIGTERM.",
)  # fmt: skip
@click.option("--compact", is_flag=True, help="Put small files together after each round.")
@keep_options
@style_option("text", "json")
@click.pass_context
def command(
    context: click.Context,
    *,
    words: tuple[str, ...],
    project: str | None,
    every: float | None,
    compact: bool,
    keep_days: int | None,
    keep_bytes: str | None,
    style: str,
) -> None:
    """Keep what is on record of processes, live or ended, in a folder of Parquet files.

    FOLDER is made if need be, or is a place in an object store, such as s3://BUCKET/PREFIX;
    PROBING_HISTORY names it where it is left out. Each row of a recorded table goes there once: the
    next export of the same process goes on where this one ended. Rows of a live process that may
    still change come with a later export, the last of them once it has ended. Files are read, and
    no process is asked. `probing history` asks what is there.

    With --every, `-t all` means those that come later and those that have ended before, too.
    --compact, --keep-days and --keep-bytes do what `history compact` does, but for a few files that
    are left until there are more; where another process does it, or queries go on, the next round.
    """
    from ...history.stores.place import place_of

    target, name = _whom_and_where(Target.of(context), words)
    place = place_of(name, os.environ)
    keep = keep_of(keep_days, keep_bytes)
    tidies = compact or keep != keep_of(None, None)
    if every is not None:
        _go_on(target, place, project, every_s=every, keep=keep if tidies else None)
        context.exit()
    done: list[Exported] = []
    code = 0
    for member in _members(target):
        try:
            done.append(_export(member, place, project))
        except ProbingError as error:
            terminal.complain(error, endpoint=member.name)
            code = code or error.exit_code
    code = code or _drain(place)
    if tidies and done:
        _tidy(place, keep, until_s=None)
    _show(done, place, style)
    context.exit(code)


def _drain(place: Place) -> int:
    """Bring what waits to its place; returns the exit code."""
    try:
        place.drain()
    except ProbingError as error:
        terminal.complain(error)
        return error.exit_code
    return 0


def _go_on(
    target: Target, place: Place, project: str | None, *, every_s: float, keep: Keep | None
) -> None:
    """Export again and again, and tell each trouble once; after SIGTERM once more.

    Args:
        keep: What is to stay; None where the files are left as they are.
    """
    kept = _Kept(place, project)
    terminal.note(f"exporting to {place.name} every {every_s:g} s")
    with Ending() as ending:
        is_last = False
        while not is_last:
            is_last, began = ending.is_asked, time.monotonic()
            for folder in _folders(target):
                kept.take(folder)
            kept.drain()
            if keep is not None and not ending.is_asked:
                kept.tidy(keep, until_s=began + every_s / 2, ending=ending)
            if not is_last:
                ending.wait(began + every_s - time.monotonic())


class _Kept:
    """What was exported before, by those who go on with it."""

    def __init__(self, place: Place, project: str | None) -> None:
        self._place = place
        self._project = project
        self._whole: set[str] = set()
        self._told: dict[str, str] = {}

    def take(self, folder: ProcessFolder) -> None:
        """Export what is new of a process, unless all of it is there."""
        from ...history.identity import has_ended

        name = folder.path.name
        if name in self._whole:
            return
        is_over = has_ended(folder)  # before its rows are read, so that the last are among them
        try:
            done = self._place.export(folder, project=self._project)
        except StoreUnreachable as error:  # which is told once, and not of each process
            self._tell(self._place.name, error)
            return
        except ProbingError as error:
            self._tell(name, error, endpoint=name)
            return
        except Exception as error:  # noqa: BLE001 - one process must not end the export of all
            self._tell(name, InternalError(f"{type(error).__name__}: {error}"), endpoint=name)
            return
        self._told.pop(name, None)
        if done.lost:
            self._whole.clear()  # what the store had of those who have ended may be lost as well
            terminal.note(f"{name}: {done.notes[-1]}")
        if is_over:
            self._whole.add(name)

    def drain(self) -> None:
        """Bring what waits on this machine to its place."""
        try:
            self._place.drain()
        except ProbingError as error:
            self._tell(self._place.name, error)
        else:
            if self._told.pop(self._place.name, None):
                terminal.note(f"{self._place.name} takes what is exported again")

    def tidy(self, keep: Keep, *, until_s: float, ending: Ending) -> None:
        """Put small files together; rows wait meanwhile, so not for long."""
        try:
            _tidy(self._place, keep, until_s=until_s, ending=ending)
        except StoreUnreachable:
            pass  # as `drain` has told
        except ProbingError as error:
            self._tell("", error)

    def _tell(self, whose: str, error: ProbingError, *, endpoint: str | None = None) -> None:
        """Complain, unless that was the last complaint about it, or a store is still away."""
        message, last = error.message, self._told.get(whose)
        if message != last and not (last and isinstance(error, StoreUnreachable)):
            terminal.complain(error, endpoint=endpoint)
        self._told[whose] = message


def _tidy(place: Place, keep: Keep, *, until_s: float | None, ending: Ending | None = None) -> None:
    """Put small files together, where nobody else does.

    Raises:
        ProbingError: It cannot be.
    """
    from ...errors import HistoryBusy, NoHistory
    from ...history.compaction.outcome import Limits

    with contextlib.suppress(HistoryBusy, NoHistory):
        asked = Limits(
            least=_LEAST, until_s=until_s, is_asked=lambda: ending is not None and ending.is_asked
        )
        place.compact(keep, asked)


def _folders(target: Target) -> Iterator[ProcessFolder]:
    """The run folders that the endpoints mean now; with `all` those of ended processes, too."""
    from ...rundir.folders import from_env

    if "all" in target.endpoints:
        yield from from_env().folders()
        target = dataclasses.replace(
            target, endpoints=tuple(one for one in target.endpoints if one != "all")
        )
    if target.endpoints:
        yield from (_folder_of(member) for member in _members(target))


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
    from ..ask.many import membership_of

    return membership_of(target).seen


def _export(member: Member, place: Place, project: str | None) -> Exported:
    """Export one process.

    Raises:
        ProbingError: It cannot be.
    """
    with terminal.waiting_for(f"exporting {member.name}"):
        return place.export(_folder_of(member), project=project)


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


def _show(done: list[Exported], place: Place, style: str) -> None:
    if style == "json":
        terminal.write_json([dataclasses.asdict(one) for one in done])
        return
    from ..render.history.outcomes import render_exported

    if done:
        terminal.write(render_exported(done, place.name))
    for one in done:
        for note in one.notes:
            terminal.note(f"{one.process}: {note}")
