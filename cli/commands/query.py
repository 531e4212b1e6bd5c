"""`probing ENDPOINT query SQL`: ask the tables."""

from __future__ import annotations

import click

from ...errors import UsageError
from .. import terminal
from ..ask.formats import FORMATS, choose_format
from ..ask.shield import go_on_in_a_child
from ..ask.text_input import TextCommand, read_text
from ..target import Target, asked_target, attach_option, target_options

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
    help="Give at most N rows, 0 for all."
    f"  [default: {ROWS_ON_A_TERMINAL} for a table"
    " on a terminal, else all]",
)  # fmt: skip
@click.option(
    "--budget-mib", type=click.FloatRange(min=0, min_open=True), metavar="N",
    help="What several processes may send together before the statement is refused."
    "  [default: 256]",
)  # fmt: skip
@click.option(
    "--explain",
    is_flag=True,
    help="Show what each of several processes would be asked, and what would run over that.",
)
@click.pass_context
def command(
    context: click.Context,
    *,
    sql: str | None,
    path: str | None,
    given: str | None,
    output: str | None,
    max_rows: int | None,
    budget_mib: float | None,
    explain: bool,
) -> None:
    """Ask the tables with SQL.

    Runs one read-only statement of DuckDB's SQL and prints its rows. SQL is an argument, -f FILE,
    or - for stdin. `probing ENDPOINT tables` lists the tables.

    Over several processes (`-t all`, `-t job:NAME`, `-t rank:0-63`, several -t) every table begins
    with the columns rank, host, pid and job, and the statement runs over the rows of all as over
    one database. Who does not answer is left out and told on stderr; the exit code is that of the
    first such failure.

    In json and jsonl, NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity",
    decimals are strings, binary values base64, times ISO 8601. FILE.arrow is an Arrow IPC file,
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
    from ..ask.answering import Question, answer

    if explain:
        _explain(target, statement)
        return
    question = Question(
        sql=statement,
        form=form,
        output=output,
        max_rows=max_rows,
        screen=screen,
        budget_mib=budget_mib,
    )
    context.exit(answer(target, question))


def _explain(target: Target, statement: str) -> None:
    """Print how a statement over many processes would be answered.

    Raises:
        UsageError: One process is asked.
    """
    if target.is_single:
        raise UsageError(
            "--explain shows what is pushed to many processes, and one is asked.",
            help="`probing PID query 'EXPLAIN SELECT ...'` shows the plan of a statement.",
        )
    from ..ask.answering_many import explain_many

    terminal.write(explain_many(statement))
