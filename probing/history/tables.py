"""The tables that a history has beside those of its processes.

Rules of this file: names and words, nothing else. Both hold what a process is as of its last
export, and not how it came about: a later export replaces its rows.
"""

from __future__ import annotations

from ..sql.process_columns import with_ranks
from ..tables import ENVIRONMENT, OWN_SCHEMA, TABLES, TORCH_TRACE, Table
from ..tables.records import Column, count, flag, moment, seconds, text

PROCESSES = Table(
    name="processes",
    kind="recorded",
    schema=OWN_SCHEMA,
    doc="Who each exported process was: one row, as of its last export.",
    columns=(
        text("process", "Its name in the history, which no other process has."),
        text("command", "What it ran, secrets masked."),
        text("executable", "The Python that ran it."),
        text("python", "Its version."),
        text("torch", "That of torch; NULL where it made no step."),
        text("probing", "That of the agent."),
        moment("started_ns", "When its agent started."),
        count("local_rank", "Its rank on its machine; NULL where it has none."),
        count("world_size", "How many ranks its job has; NULL where no launcher said so."),
        count("attempt", "How often its launcher had started the job anew."),
        text("git_commit", "The commit its script is of; NULL outside of a repository."),
        text("git_branch", "The branch."),
        text("devices", "The accelerators that it could see; NULL where it made no step."),
        text("boot_id", "The boot of its machine."),
        count("last_step", "The newest training step on record; NULL before the first."),
        flag("has_ended", "Whether it had ended."),
        moment("ended_ns", "When, where an error of its own tells; NULL otherwise."),
        text("ending", "How it ended, and on what evidence; NULL while it runs."),
        moment("exported_ns", "When it was last exported."),
    ),
)
EXPORTS = Table(
    name="exports",
    kind="recorded",
    schema=OWN_SCHEMA,
    doc="How much of each recorded table of a process is in the history, as of its last export.",
    columns=(
        text("name", "The table."),
        count("exported", "Rows that are in the history."),
        count("overwritten", "Rows that made room for newer ones before they were exported."),
        count("damaged", "Rows of an ended process that could not be read."),
        count("waiting", "Rows of a live process that may still change, or were being written."),
        count("files", "The files that they are in."),
    ),
)
HISTORY_TABLES: tuple[Table, ...] = (PROCESSES, EXPORTS)
LOOKS = frozenset({PROCESSES.name, EXPORTS.name, ENVIRONMENT.name})
"""Those that hold what a process is now."""
KEPT_TABLES: tuple[Table, ...] = (
    *(table for table in TABLES if table.kind == "recorded"),
    *(table for table in TABLES if table.name == "environment"),
    *HISTORY_TABLES,
)
"""All that a history holds."""

RUN = text("run", "The run: all ranks of one start of a job, or one process without ranks.")
PARTITIONS = (
    text("project", "What the run belongs to: its script, where nobody said otherwise."),
    text("day", "The day of the row in UTC, as 2026-11-24; of who a process was, its first."),
)


CALLS, TOTAL = "calls", "total_s"
_ROLLED_UP = {
    TORCH_TRACE.name: (
        count(CALLS, "Of a row that was rolled up, how many calls it stands for; NULL otherwise."),
        seconds(TOTAL, "What these took together, where they are more than one; NULL otherwise."),
    )
}
"""The columns that a table has once rows of it were rolled up."""


def in_history(table: Table) -> Table:
    """A table as it is over all runs: as over many processes, with its run in front."""
    shown = _with_run(table)
    return shown._replace(columns=(*shown.columns, *_ROLLED_UP.get(table.name, ())))


def _with_run(table: Table) -> Table:
    """A table with whose its rows are in front."""
    return table._replace(columns=(RUN, *PARTITIONS, *with_ranks(table).columns))


def stored(table: Table) -> tuple[Column, ...]:
    """The columns that a file has; the others are the names of its folders."""
    partitions = {column.name for column in PARTITIONS} | {"job"}
    columns = _with_run(table).columns
    added = len(columns) - len(table.columns)
    return (*(c for c in columns[:added] if c.name not in partitions), *table.columns)
