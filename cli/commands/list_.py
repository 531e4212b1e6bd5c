"""`probing list`: the processes there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ..ask.replies import fitted, write_answer
from ..command import AskCommand
from ..options import limit_option, style_option, typed_option, watch_option
from ..output import terminal
from ..target import Target, refuse_target, target_options

if TYPE_CHECKING:
    from ...client.listing import ProcessSummary

_MOST_NOTES = 5


@click.command("list", cls=AskCommand)
@target_options
@click.option("--dead", is_flag=True, help="Include processes that have ended.")
@click.option(
    "--all", "every", is_flag=True, help="Include the Python processes that have no agent."
)
@click.option(
    "--job", "job", metavar="[NAME]", is_flag=False, flag_value="",
    help="Show the ranks of a job, those that are missing among them; without NAME, of all jobs.",
)  # fmt: skip
@limit_option("How many processes to show", default=0, shown="all")
@watch_option()
@style_option("table", "json")
@click.pass_context
def command(
    context: click.Context, *, dead: bool, every: bool, job: str | None, limit: int, style: str
) -> None:
    """List the processes with an agent.

    Shows pid, rank, state (training, no step ends, idle, not recorded, stopped, not answering,
    attaching, no agent, dead), the current training step, how long ago it began, and the command,
    from the record; `idle` is one that has made no step yet. --dead adds those that have ended, and
    how: an exit code, a signal, an exception, `no word` (as after SIGKILL). --all adds
    Python processes without an agent: whether they have loaded torch, and whether `probing attach`
    would work.

    --job has a line for every rank that the job should have. -t says where to look (an @HOSTFILE, a
    node server, and so on), else on this machine and in PROBING_JOB_DIR.
    """
    if job is not None:
        option = typed_option(context, "limit", "dead", "every")
        if option is not None:
            raise UsageError(f"--job has a line for each rank, and no use for {option}.")
        _list_job(Target.of(context), job, style)
        return
    refuse_target(context)
    from ...client.listing import list_processes

    found = list_processes(dead=dead, every=every)
    processes = found[: limit or None]
    if style == "json":
        shown = [dataclasses.asdict(process) for process in processes]
        terminal.write_json(shown)
    elif processes:
        from ..render.process.processes import render_processes

        screen = terminal.screen()
        terminal.write(render_processes(processes, width=screen.width, color=screen.color))
    else:
        terminal.note(
            "no process with a probing agent was found; start one with PROBING=1 or `probing run`,"
            " or attach to one: `probing list --all` shows the Python processes."
        )
    if len(processes) < len(found):
        terminal.note(f"{len(found) - len(processes):,} more processes; -n 0 shows all")
    _tell_passed()
    if dead:
        _tell_given_up()
    _tell_shared_pids(processes)
    _tell_problems(processes)


def _tell_shared_pids(processes: Sequence[ProcessSummary]) -> None:
    """Say by what else those are asked that have one pid, as of containers that have ended."""
    folders: dict[int, list[str]] = {}
    for process in processes:
        folders.setdefault(process.pid, []).append(process.folder or "")
    for pid, its in folders.items():
        if len(its) > 1:
            listed = ", ".join(filter(None, its[:_MOST_NOTES]))
            terminal.note(
                f"{len(its):,} processes have pid {pid}; by its folder, `probing FOLDER ...` asks"
                f" the one that is meant: {listed}"
            )


def _tell_problems(processes: Sequence[ProcessSummary]) -> None:
    """Say what is wrong with some of them; the rest is told by each."""
    told = [
        words
        for process in processes
        for words in (
            *(f"process {process.pid}: {problem}" for problem in process.problems),
            *([process.obstacle] if process.obstacle else []),
        )
    ]
    terminal.note(*told[:_MOST_NOTES])
    if len(told) > _MOST_NOTES:
        more = len(told) - _MOST_NOTES
        terminal.note(f"{more:,} more notes like these; `probing PID status` has those of one")


def _tell_passed() -> None:
    """Say where was looked, if that is not where it was asked for."""
    from ...rundir.places import chosen_by_env

    path, passed = chosen_by_env()
    for place, why in passed[:1]:
        terminal.note(f"{place} is no run directory: {why}; looked into was {path}")


def _tell_given_up() -> None:
    """Say of which processes there is no record any more, or none that is kept."""
    from ...rundir.folders import from_env
    from ...rundir.pruning import given_up, overdue
    from ..render.text import plural

    directory = from_env()
    old = overdue(directory.folders())
    if old:
        terminal.note(
            f"left out {plural(len(old), 'record')} older than PROBING_KEEP_HOURS, which the next"
            f" agent to start there removes; or remove by hand, as {old[0].path}"
        )
    gone = given_up(directory)
    if gone:
        more = f" (and of {len(gone) - 1:,} before it)" if len(gone) > 1 else ""
        terminal.note(f"{gone[0]}{more}")


def _list_job(target: Target, job: str, style: str) -> None:
    """Expected ranks beside those that were seen."""
    from ..ask.many import membership_of

    if target.endpoints:
        membership = membership_of(target, states=True, job=job or None)
    else:
        everywhere = (f"job:{job}" if job else "all",)
        membership = membership_of(dataclasses.replace(target, endpoints=everywhere), states=True)
    from ..render.ranks.members import render_members

    write_answer(membership, style, fitted(render_members))
