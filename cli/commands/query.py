"""`probing ENDPOINT query SQL`: ask the tables."""

from __future__ import annotations

import click

from .. import terminal
from ..formats import FORMATS, choose_format
from ..shield import go_on_in_a_child
from ..target import asked_target, attach_option, target_options
from ..text_input import TextCommand, read_text

ROWS_ON_A_TERMINAL = 40


@click.command("query", cls=TextCommand)
@click.argument("sql", required=False)
@target_options
@attach_option
@click.option("-f", "--file", "path", metavar="FILE", help="Read the SQL from a file.")
@click.option(
    "--format", "given", type=click.Choice(list(FORMATS)),
    help="How to write the rows.  [default: table on a terminal, jsonl when piped]",
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="FILE",
    help="Write to a file, which appears once it is whole; its suffix tells the format.",
)  # fmt: skip
@click.option(
    "--max-rows", type=click.IntRange(min=0), metavar="N",
    help="Give at most N rows of each endpoint, 0 for all."
    f"  [default: {ROWS_ON_A_TERMINAL} for a table"
    " on a terminal, else all]",
)  # fmt: skip
@click.pass_context
def command(
    context: click.Context,
    *,
    sql: str | None,
    path: str | None,
    given: str | None,
    output: str | None,
    max_rows: int | None,
) -> None:
    """Ask the tables with SQL.

    Runs one statement and prints its rows. SQL is given as an argument, with -f FILE, or as -
    to read it from stdin. `probing ENDPOINT tables` lists the tables. The statement is DuckDB's
    SQL; it can only read.

    With several endpoints it runs at each, and the answer begins with a column `endpoint`.

    In json and jsonl, NaN and the infinities are null, since JSON has none; decimals are
    strings; binary values are base64, times ISO 8601. A file FILE.arrow is an Arrow IPC file,
    FILE.arrows and a pipe get an Arrow IPC stream.
    """
    target = asked_target(context)
    statement = read_text("SQL", sql, path)
    screen = terminal.screen() if output is None else terminal.PLAIN
    form = choose_format(given, output, is_terminal=screen.is_terminal)
    if max_rows is None:
        max_rows = ROWS_ON_A_TERMINAL if form == "table" and screen.is_terminal else 0
    go_on_in_a_child()
    # Here, not above: it imports pyarrow, which `--help` and completion do without.
    from ..answering import Question, answer

    question = Question(sql=statement, form=form, output=output, max_rows=max_rows, screen=screen)
    context.exit(answer(target, question))
