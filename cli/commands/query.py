"""`probing ENDPOINT query SQL`: ask the tables."""

from __future__ import annotations

import click

from ...errors import UsageError
from ..ask.shield import go_on_in_a_child
from ..ask.statement import statement_of
from ..ask.text_input import TextCommand
from ..completion import complete_sql
from ..options import choose_rows, rows_options, statement_options, watch_option
from ..output import terminal
from ..target import Target, asked_target, attach_option, target_options


@click.command("query", cls=TextCommand)
@click.argument("sql", required=False, shell_complete=complete_sql)
@target_options
@attach_option
@statement_options
@watch_option()
@rows_options(former="--max-rows")
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
    parameters: tuple[str, ...],
    given: str | None,
    output: str | None,
    limit: int | None,
    budget_mib: float | None,
    explain: bool,
) -> None:
    """Ask the tables with SQL.

    Runs one read-only statement of DuckDB's SQL and prints its rows. SQL is an argument, FILE.sql,
    -f FILE, - for stdin, or @NAME, one of the saved questions that `probing query @` lists. -p
    step=100 puts 100 in the place of $step. SHOW TABLES lists the tables, DESCRIBE steps the
    columns of one; FROM steps needs no schema.

    Over several processes (`-t all`, `-t job:NAME`, `-t rank:0-63`, several -t) every table begins
    with the columns rank, host, pid and job, and the statement runs over the rows of all as over
    one database. Who does not answer is left out and told on stderr; the exit code is that of the
    first such failure.

    In json and jsonl, NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity",
    decimals are strings, binary values base64, times ISO 8601. FILE.arrow is an Arrow IPC file,
    FILE.arrows and a pipe get an Arrow IPC stream.
    """
    if sql == "@" and path is None:
        _list_questions()
        return
    target = asked_target(context)
    statement = statement_of(sql, path, parameters)
    screen, form, most = choose_rows(context, given, output, limit)
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
        max_rows=most,
        screen=screen,
        budget_mib=budget_mib,
    )
    context.exit(answer(target, question))


def _list_questions() -> None:
    from ..questions.library import all_questions
    from ..render.process.questions import render_questions

    screen = terminal.screen()
    terminal.write(render_questions(all_questions(), width=screen.width, color=screen.color))


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
