"""`probing ENDPOINT tables [TABLE]`: what can be asked, and how much of it there is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ...errors import UsageError
from ...messages.common import TablesAnswer, TableStatus
from ...sql.nearest import nearest
from ...tables import OWN_SCHEMA, SCHEMA, TABLES_BY_NAME, Table
from ..ask.replies import show
from ..command import AskCommand
from ..completion import complete_tables
from ..options import limit_option, style_option, watch_option
from ..output import terminal
from ..target import asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ...client.base import Process
    from ..output.terminal import Screen

_OTHER_LINES = 4


@click.command("tables", cls=AskCommand)
@click.argument("table", required=False, shell_complete=complete_tables)
@target_options
@attach_option
@limit_option("How many tables to show", default=None, shown="what fits the screen")
@watch_option()
@style_option("table", "json")
@click.pass_context
def command(context: click.Context, *, table: str | None, limit: int | None, style: str) -> None:
    """List the tables and their columns.

    Shows rows held and meaning; -v also the age of the oldest row, rows written and lost. TABLE
    lists its columns. A recorded table outlives the process; a live one is made when it is asked.
    """
    target = asked_target(context)

    def ask(process: Process) -> tuple[TablesAnswer, Table | None]:
        answer = process.tables()
        return answer, None if table is None else find_table(table, answer)

    code = show(
        target,
        style,
        ask,
        lambda found, screen: _render(*found, screen, limit),
        lambda found: _plain(*found, limit),
    )
    context.exit(code)


def _render(answer: TablesAnswer, table: Table | None, screen: Screen, limit: int | None) -> str:
    from ..render.process.catalog import render_columns, render_tables

    now_ns = time.time_ns()
    if table is None:
        is_whole = terminal.ways.verbose
        fitting = 0 if is_whole else screen.rows_beside(_OTHER_LINES)
        return render_tables(
            answer,
            now_ns=now_ns,
            width=screen.width,
            color=screen.color,
            most=fitting if limit is None else limit,
            is_whole=is_whole,
        )
    status = status_of(table, answer)
    return render_columns(table, status, now_ns=now_ns, width=screen.width, color=screen.color)


def _plain(answer: TablesAnswer, table: Table | None, limit: int | None) -> Any:
    from ..render.process.catalog import plain_table

    now_ns = time.time_ns()
    if table is None:
        return [plain_table(status, now_ns=now_ns) for status in answer.tables[: limit or None]]
    return plain_table(status_of(table, answer), now_ns=now_ns)


def find_table(name: str, answer: TablesAnswer | None = None) -> Table:
    """The table of that name, with the schema or without.

    Args:
        answer: Those of a process, which may have tables of its own.

    Raises:
        UsageError: There is none.
    """
    short = name.removeprefix(f"{SCHEMA}.").removeprefix(f"{OWN_SCHEMA}.")
    if short in TABLES_BY_NAME:
        return TABLES_BY_NAME[short]
    told = [status.table() for status in (answer.tables if answer is not None else ())]
    known = {**TABLES_BY_NAME, **{table.name: table for table in told if table is not None}}
    if short in known:
        return known[short]
    near = nearest(short, known)
    hint = f" Did you mean {known[near].full_name}?" if near else ""
    raise UsageError(
        f"there is no table {name!r}.{hint}", help="`probing ENDPOINT tables` lists all tables."
    )


def status_of(table: Table, answer: TablesAnswer) -> TableStatus:
    """How that table stands; an agent of another version may not have it."""
    unknown = TableStatus(name=table.name, kind=table.kind)
    return next((status for status in answer.tables if status.name == table.name), unknown)
