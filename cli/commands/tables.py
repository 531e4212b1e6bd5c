"""`probing ENDPOINT tables [TABLE]`: what can be asked, and how much of it there is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ..ask.asking import show
from ..completion import complete_tables
from ..target import asked_target, attach_option, style_option, target_options

if TYPE_CHECKING:
    from ...messages.common import TablesAnswer
    from ...tables import Table
    from ..terminal import Screen


@click.command("tables")
@click.argument("table", required=False, shell_complete=complete_tables)
@target_options
@attach_option
@style_option("table", "json")
@click.pass_context
def command(context: click.Context, *, table: str | None, style: str) -> None:
    """List the tables and their columns.

    Shows for each table the rows held, the age of the oldest, the rows written and lost. With
    TABLE, list its columns with type, unit and meaning. A recorded table is kept in the
    process's run folder and outlives it; a live one is made when it is asked.
    """
    from ..ask.catalog import find_table

    target = asked_target(context)
    chosen = None if table is None else find_table(table)

    code = show(
        target,
        style,
        lambda process: process.tables(),
        lambda answer, screen: _render(answer, chosen, screen),
        lambda answer: _plain(answer, chosen),
    )
    context.exit(code)


def _render(answer: TablesAnswer, table: Table | None, screen: Screen) -> str:
    from ..ask.catalog import status_of
    from ..render.process.catalog import render_columns, render_tables

    now_ns = time.time_ns()
    if table is None:
        return render_tables(answer, now_ns=now_ns, width=screen.width, color=screen.color)
    status = status_of(table, answer)
    return render_columns(table, status, now_ns=now_ns, width=screen.width, color=screen.color)


def _plain(answer: TablesAnswer, table: Table | None) -> Any:
    from ..ask.catalog import status_of
    from ..render.process.catalog import plain_table

    now_ns = time.time_ns()
    if table is None:
        return [plain_table(status, now_ns=now_ns) for status in answer.tables]
    return plain_table(status_of(table, answer), now_ns=now_ns)
