"""`probing ENDPOINT query SQL`: ask the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...errors import UsageError
from ..ask.shield import go_on_in_a_child
from ..ask.statement import statement_of
from ..ask.text_input import TextCommand
from ..completion import complete_sql
from ..options import given_by_user, json_option, limit_option, wants_json, watch_option
from ..output import terminal
from ..output.formats import FORMATS, choose_format
from ..target import Target, asked_target, attach_option, target_options

if TYPE_CHECKING:
    from ..output.terminal import Screen

_OTHER_LINES = 4
"""What stands above and below the rows of a table."""


@click.command("query", cls=TextCommand)
@click.argument("sql", required=False, shell_complete=complete_sql)
@target_options
@attach_option
@click.option("-f", "--file", "path", metavar="FILE", help="Read the SQL from a file.")
@click.option(
    "-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE",
    help="The value of $NAME in the SQL; may be given several times.",
)  # fmt: skip
@click.option(
    "--format", "given", type=click.Choice(list(FORMATS)),
    help="How to write the rows.  [default: table, or what the file's suffix says]",
)  # fmt: skip
@json_option
@watch_option()
@click.option(
    "-o", "--output", metavar="FILE",
    help="Write to a file, which appears once it is whole; its suffix tells the format.",
)  # fmt: skip
@limit_option(
    "How many rows to give",
    default=None,
    former="--max-rows",
    shown="what fits, for a table on a terminal, else all",
)
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
    screen = terminal.screen() if output is None else terminal.PLAIN
    form = _form(context, given, output, screen)
    if limit is None:
        limit = screen.rows_beside(_OTHER_LINES) if form == "table" else 0
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
        max_rows=limit,
        screen=screen,
        budget_mib=budget_mib,
    )
    context.exit(answer(target, question))


def _form(context: click.Context, given: str | None, output: str | None, screen: Screen) -> str:
    """The format; one of the settings file gives way to all that the command line says."""
    by_user = given_by_user(context, "given", given)
    if wants_json(context, by_user):
        given = "json"
    elif output is not None:
        given = by_user
    return choose_format(given, output, is_terminal=screen.is_terminal)


def _list_questions() -> None:
    """Print the saved questions."""
    from ..questions.library import QUESTIONS
    from ..render.process.questions import render_questions

    screen = terminal.screen()
    terminal.write(render_questions(QUESTIONS, width=screen.width, color=screen.color))


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
