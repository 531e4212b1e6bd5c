"""`probing history`: ask all runs that were exported; no process is asked."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import time
from typing import TYPE_CHECKING

import click

from ...errors import MissingLibrary, UsageError
from ...history.engines import ENGINES
from ...history.stores.address import store_of
from ..ask.replies import fitted, write_answer
from ..ask.shield import go_on_in_a_child
from ..ask.statement import statement_of
from ..ask.text_input import TextCommand
from ..command import AskCommand, AskGroup
from ..history_words import (
    folder_and_sql,
    folder_before,
    given_words,
    keep_of,
    keep_options,
    place_named,
)
from ..options import choose_rows, limit_option, rows_options, statement_options, style_option
from ..output import terminal
from ..target import Target, refuse_target, target_options

if TYPE_CHECKING:
    from ...history.query import History
    from ...history.runs import Run
    from ..ask.answering import Question

_GRACE_S = 2.0
_ENGINE_S = 600.0
"""What another engine may take by default: Spark may take a minute to start."""


@click.group("history", cls=AskGroup, no_args_is_help=False)
@target_options
@click.pass_context
def command(context: click.Context) -> None:
    """Ask the runs that `probing export` has kept, on any machine; no process is asked.

    FOLDER is where they were exported to: a folder, or a place in an object store, such as
    s3://BUCKET/PREFIX. PROBING_HISTORY names it where it is left out.
    """
    refuse_target(context)


@command.command("runs", cls=AskCommand)
@click.argument("folder", required=False)
@target_options
@limit_option("How many runs to show, the newest first", default=50)
@style_option("text", "json")
@click.pass_context
def runs(context: click.Context, *, folder: str | None, limit: int, style: str) -> None:
    """List the runs: when, where, how far they came, how they ended, and what ran.

    A run is all ranks of one start of a job, or one process without ranks. probing.processes has a
    row for each of its processes.
    """
    refuse_target(context)
    place = place_named(folder)
    go_on_in_a_child()
    from ...history.query import History
    from ...history.runs import runs_of

    limit_s = Target.of(context).limit_s
    with _within(limit_s, place):
        history = History(place, timeout_s=limit_s)
        found = list(runs_of(history, timeout_s=limit_s, most=limit or None))
    terminal.note(*history.notes)
    if style == "json":
        terminal.write_json([dataclasses.asdict(run) for run in found])
    else:
        _draw(found)


@command.command("show", cls=AskCommand)
@click.argument("words", nargs=-1, metavar="[FOLDER] RUN")
@target_options
@click.option("--rank", type=int, metavar="N", help="Whose figures; the lowest that is kept.")
@style_option("text", "json")
@click.pass_context
def show(context: click.Context, *, words: tuple[str, ...], rank: int | None, style: str) -> None:
    """Show one run on one screen: who, when, how it ended, speed, loss, memory, what is not kept.

    Ranks, endings and memory are those of all ranks; speed by phase, losses and the slowest modules
    are of one. Steps of the start and those with a checkpoint or after an evaluation are no part of
    the speed. A RUN is its name, or a part of that which no other has.
    """
    refuse_target(context)
    if len(words) not in {1, 2}:
        raise UsageError(
            f"one run is shown, but {given_words(words)}.",
            help="`probing history show FOLDER RUN`; `probing history runs` lists them.",
        )
    place = place_named(folder_before(words, 1))
    go_on_in_a_child()
    from ...diagnosis.runs.kept import find_kept
    from ..render.history.kept_run import render_kept_run
    from ..reports.run.kept import screen_of

    notes: list[str] = []
    limit_s = Target.of(context).limit_s
    with _within(limit_s, place):
        (kept,) = find_kept(place, words[-1:], timeout_s=limit_s, notes=notes)
        shown = screen_of(kept, rank=rank)
    write_answer(shown, style, fitted(render_kept_run, place=place, asked=kept.asked))
    terminal.note(*dict.fromkeys(notes))


@command.command("diff", cls=AskCommand)
@click.argument("words", nargs=-1, metavar="[FOLDER] RUN RUN")
@target_options
@click.option("--rank", type=int, metavar="N", help="Which rank; the lowest that both have.")
@style_option("text", "json", "markdown")
@click.pass_context
def diff(context: click.Context, *, words: tuple[str, ...], rank: int | None, style: str) -> None:
    """Show what differs between two runs, and what most likely explains it.

    As `probing diff`, of what was kept: the set-up, speed by phase and module, memory, and losses
    at the same steps. A RUN is its name, or a part of that which no other has.
    """
    refuse_target(context)
    if len(words) not in {2, 3}:
        raise UsageError(
            f"two runs are compared, but {given_words(words)}.",
            help="`probing history diff FOLDER RUN RUN`; `probing history runs` lists them.",
        )
    place = place_named(folder_before(words, 2))
    go_on_in_a_child()
    from ...diagnosis.runs.kept import compare_kept, find_kept
    from .diff import write_comparison

    notes: list[str] = []
    limit_s = Target.of(context).limit_s
    with _within(limit_s, place):
        before, after = find_kept(place, words[-2:], timeout_s=limit_s, notes=notes)
        compared, names = compare_kept(before, after, rank=rank)
    command_line = f"probing history diff {shlex.quote(place)}"
    write_comparison(compared, names, style, command=command_line)
    terminal.note(*dict.fromkeys(notes))


def _draw(found: list[Run]) -> None:
    """Print the runs."""
    from ..render.history.runs import render_runs

    screen = terminal.screen()
    terminal.write(render_runs(found, width=screen.width, color=screen.color))


@command.command("compact", cls=AskCommand)
@click.argument("folder", required=False)
@target_options
@keep_options
@click.option(
    "--roll-up", type=click.IntRange(min=1), metavar="N",
    help="Roll up rows of modules of days more than N days ago: one for each module and step.",
)  # fmt: skip
@style_option("text", "json")
@click.pass_context
def compact(
    context: click.Context,
    *,
    folder: str | None,
    keep_days: int | None,
    keep_bytes: str | None,
    roll_up: int | None,
    style: str,
) -> None:
    """Put the small files of a history together, and remove what is not to be kept.

    The files of each table of a job and day become few, with the same rows. Queries and exports may
    go on meanwhile, and it may be killed at any moment; other engines see the folder as it is, so
    ask nothing by them meanwhile. With --timeout nothing more is begun after so many seconds.

    --roll-up makes one row of all calls of a module in a step, in a folder as in a store: the
    median of their times stays, with how many they were and what they took together; when each was,
    and its own time, are gone.
    """
    refuse_target(context)
    place = place_named(folder)
    from ...history.compaction.outcome import Limits
    from ...history.stores.place import place_of
    from ..render.history.outcomes import render_compacted

    where = place_of(place, os.environ)
    timeout_s = Target.of(context).timeout_s
    limits = Limits(until_s=None if timeout_s is None else time.monotonic() + timeout_s)
    with terminal.waiting_for(f"compacting {place}"):
        keep = dataclasses.replace(keep_of(keep_days, keep_bytes), whole_days=roll_up)
        done = where.compact(keep, limits)
    write_answer(done, style, lambda done, _: render_compacted(done, place))
    terminal.note(*done.notes)


@command.command("iceberg", cls=AskCommand)
@click.argument("folder", required=False)
@target_options
@click.option("--catalog", metavar="NAME", help="One of yours, as pyiceberg's settings name it.")
@style_option("text", "json")
@click.pass_context
def iceberg(context: click.Context, *, folder: str | None, catalog: str | None, style: str) -> None:
    """Make Iceberg tables over the files of a history, or bring those up to date.

    No row is copied. Each table gets what it lacks of the finished files, and loses those that are
    gone, by one commit, or one for each 2,000 new files; it may be killed at any moment, and done
    again. After a compaction do it again, for until then the tables name files that are no more.
    The catalog is a file of SQLite, FOLDER/_probing/iceberg/catalog.db, in a store as well.
    """
    refuse_target(context)
    place = place_named(folder)
    from ..render.history.outcomes import render_committed

    try:
        from ...history.iceberg.committing import commit
    except ModuleNotFoundError:
        raise MissingLibrary("probing-agent[iceberg]") from None
    with terminal.waiting_for(f"committing {place}"):
        done = commit(place, catalog=catalog)
    write_answer(done, style, fitted(render_committed))
    terminal.note(*done.notes)


@command.command("query", cls=TextCommand)
@click.argument("words", nargs=-1, metavar="[FOLDER] [SQL]")
@target_options
@click.option("--run", metavar="RUN", help="Only the rows of this run: its name, or a part of it.")
@click.option("--rank", type=int, metavar="N", help="Of the run only the rows of this rank.")
@click.option(
    "--engine", type=click.Choice(("duckdb", *ENGINES)), default="duckdb",
    help="Who answers; the others are your own packages.  [default: duckdb]",
)  # fmt: skip
@statement_options
@rows_options()
@click.pass_context
def query(
    context: click.Context,
    *,
    words: tuple[str, ...],
    run: str | None,
    rank: int | None,
    engine: str,
    path: str | None,
    parameters: tuple[str, ...],
    given: str | None,
    output: str | None,
    limit: int | None,
) -> None:
    """Ask the tables of all runs with SQL.

    SQL is as for `probing query`: a text, FILE.sql, -f FILE, -, or @NAME, a saved question. The
    tables are the recorded ones and python.environment, each with the columns run, project, day,
    rank, host, pid and job in front; probing.processes says who each process was,
    probing.exports how much of its tables is there. Most saved questions are of one process, which
    --run and --rank choose. --engine has Spark, Daft, or Daft on Ray answer, by the settings that
    they have here, of a folder or s3://BUCKET/PREFIX; Spark needs its hadoop-aws for that. They
    have ten minutes, or --timeout.
    """
    refuse_target(context)
    if rank is not None and run is None:
        raise UsageError("--rank is one of a run.", help="Name the run: `--run RUN --rank N`.")
    folder, sql = folder_and_sql(words, path)
    statement = statement_of(sql, path, parameters)
    screen, form, most = choose_rows(context, given, output, limit)
    place = place_named(folder)
    if engine == "duckdb":  # the only one that dies of some statements, and what is not its memory
        go_on_in_a_child()
    # Here, not above: it imports pyarrow, which `--help` and completion do without.
    from ..ask.answering import Question

    question = Question(sql=statement, form=form, output=output, max_rows=most, screen=screen)
    target = Target.of(context)
    if engine == "duckdb":
        _answer(place, question, run, rank, limit_s=target.limit_s)
    else:
        limit_s = _ENGINE_S if target.timeout_s is None else target.timeout_s
        _answer_by(engine, place, question, run, rank, limit_s=limit_s)


def _answer(
    place: str, question: Question, run: str | None, rank: int | None, *, limit_s: float
) -> None:
    """Ask, and write the rows.

    Raises:
        ProbingError: There is no answer, or it cannot be written.
    """
    from ..ask.answering import write_rows

    notes: list[str] = []
    with _within(limit_s, place):
        history = _history(place, run, rank, notes, limit_s=limit_s)
        answer = history.query(question.sql, timeout_s=limit_s, max_rows=question.limit)
        with answer:
            write_rows(answer.schema, answer.batches(), question)
    terminal.note(*dict.fromkeys(notes), *([answer.truncated] if answer.truncated else []))


def _answer_by(
    engine: str,
    place: str,
    question: Question,
    run: str | None,
    rank: int | None,
    *,
    limit_s: float,
) -> None:
    """Have another engine answer, and write the rows.

    Raises:
        ProbingError: There is no answer, or it cannot be written.
    """
    from ...history.engines.asking import ask
    from ..ask.answering import write_rows

    notes: list[str] = []
    with _within(limit_s, place):
        history = _history(place, run, rank, notes, limit_s=limit_s)
        with terminal.waiting_for(f"asking {engine}"):
            rows = ask(history, engine, question.sql, max_rows=question.limit)
        write_rows(rows.schema, rows.to_batches(), question)
    terminal.note(*dict.fromkeys(notes))


def _history(
    place: str, run: str | None, rank: int | None, notes: list[str], *, limit_s: float
) -> History:
    """All runs of a history, or the one that is chosen.

    Raises:
        ProbingError: It is not there.
    """
    from ...diagnosis.runs.kept import find_kept
    from ...history.query import History
    from ...history.scanning.chosen import EVERY_RANK

    if run is None:
        return History(place, notes, timeout_s=limit_s)
    (kept,) = find_kept(place, (run,), timeout_s=limit_s, notes=notes)
    return kept.history(EVERY_RANK if rank is None else kept.process(rank)["rank"])


def _within(limit_s: float, place: str) -> contextlib.AbstractContextManager[None]:
    """The time limit of what asks a history; what that needs is loaded before it begins.

    Raises:
        ProbingError: It is no place of one.
    """
    from ...history.query import source_of
    from ..time_limit import within

    source_of(place)
    return within(limit_s, grace_s=_GRACE_S, of=store_of(place))
