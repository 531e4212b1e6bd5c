"""``%probing`` and ``%%probing``: lines and cells of a notebook that run in a training.

Rules of this file: runs in the notebook's kernel, at the operator's side. What goes wrong ends the
cell with one sentence, without a traceback of ours.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import ProbingError

if TYPE_CHECKING:
    from ...api.process import Process
    from ...api.ranks import Job
    from ...sql.answer import Rows

_SQL = "--sql"
_SESSION = "notebook"
_USAGE = (
    "%%probing [ENDPOINT] [--timeout SECONDS] [--now] [--thread NAME] [--frame N] above code, or"
    " %%probing [ENDPOINT] --sql [--into NAME] above a statement"
)

_KEPT = "The cell names no endpoint, so it asked the one that `%probing {}` keeps."


class RemoteText(str):
    """The text of a value in another process, shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Cells:
    """The magic of one notebook.

    Attributes:
        endpoint: Whom `%probing ENDPOINT` keeps, for cells that name nobody.
    """

    def __init__(self, shell: Any) -> None:
        self.endpoint: str | None = None
        self._shell = shell

    def run(self, line: str, cell: str | None = None) -> Any:
        """Run a cell, or the rest of a line, in a training.

        ``%probing`` lists the trainings, ``%probing ENDPOINT`` shows one and keeps it for cells
        that name none. ``%%probing [ENDPOINT]`` runs the code below it between two steps:
        ``[--timeout SECONDS] [--now] [--thread NAME] [--frame N]``. ``%%probing [ENDPOINT] --sql``
        runs a statement, or a saved question by its ``@NAME``; ``--into NAME`` keeps the rows by
        that name. ``%probing ENDPOINT CODE`` and ``%probing --sql ENDPOINT STATEMENT`` are the same
        in one line. An endpoint with code or a statement is for these alone.
        """
        asked_for = origin = ""
        try:
            if cell is None and not line.strip():
                return _trainings()
            options, code = self._parse(line, cell)
            asked_for, origin = options.endpoint, options.origin
            asked = connect(asked_for)
            if not code.strip():
                self.endpoint = asked_for if cell is None else self.endpoint
                return asked
            return self._ask(asked, options, code) if options.sql else _run(asked, options, code)
        except ProbingError as error:
            hint = error.help.replace("probing ENDPOINT ", f"probing {asked_for or 'ENDPOINT'} ")
            _refuse(" ".join(part for part in (error.message, hint, origin) if part))

    def _ask(
        self, asked: Process | Job, options: argparse.Namespace, statement: str
    ) -> Rows | None:
        from ..ask.statement import statement_of

        text = statement.strip()
        sql = statement_of(text, None) if text.startswith("@") else text
        rows = asked.query(sql, timeout_s=options.timeout)
        rows.to_arrow()
        if options.into is None:
            return rows
        self._shell.user_ns[options.into] = rows
        print(f"{len(rows):,} rows are in {options.into}")  # noqa: T201 - the cell's output
        return None

    def _expanded(self, _words: str) -> str:
        """Words in which ``{name}`` and ``$name`` are the notebook's variables; never code."""
        return str(self._shell.var_expand(_words))

    def _parse(self, line: str, cell: str | None) -> tuple[argparse.Namespace, str]:
        if cell is None:
            given = line.strip()
            flags = [_SQL] if given.split()[0] == _SQL else []
            endpoint, _, code = given.removeprefix(_SQL).strip().partition(" ")
            endpoint = self._expanded(endpoint)
            if flags and not code.strip():
                _refuse("say whom to ask and what: %probing --sql ENDPOINT STATEMENT.")
            return _parser().parse_args([endpoint, *flags]), code
        try:
            words = shlex.split(self._expanded(line))
        except ValueError as error:
            _refuse(f"%%probing {line} cannot be read: {error}.")
        options = _parser().parse_args(words)
        if options.endpoint is None and self.endpoint is None:
            _refuse(
                "say whom to ask: %%probing ENDPOINT for this cell, or %probing ENDPOINT before it"
                " for all that name none; %probing alone lists the trainings."
            )
        if options.endpoint is None:
            options.endpoint, options.origin = self.endpoint, _KEPT.format(self.endpoint)
        if options.into is not None and not (options.sql and options.into.isidentifier()):
            _refuse("--into takes the name of a variable, and goes with --sql.")
        return options, cell


def connect(endpoint: str) -> Process | Job:
    """The process that an endpoint means, or the ranks.

    Raises:
        ProbingError: There is none.
    """
    from ...cluster.job.forms import names_many

    if names_many(endpoint):
        from ...api.ranks import connect_many

        return connect_many(endpoint)
    from ...api.process import connect as connect_to_one

    return connect_to_one(endpoint)


def _run(asked: Process | Job, options: argparse.Namespace, code: str) -> RemoteText | None:
    """Run code in one process, and print what it prints."""
    if not hasattr(asked, "eval"):
        sentence = f"code runs in one process, and {options.endpoint} means several."
        _refuse(f"{sentence} {options.origin}".strip())
    result = asked.eval(
        code,
        timeout_s=options.timeout,
        now=options.now,
        thread=options.thread,
        frame=options.frame,
        session=_SESSION,
    )
    sys.stdout.write(result.output)
    if result.error:
        sys.stderr.write(result.error)
        _refuse(f"the code failed in {options.endpoint}: {result.error_type}")
    return None if result.value is None else RemoteText(result.value)


def _trainings() -> RemoteText:
    """The trainings of this machine, as `probing list` shows them."""
    from ...client.listing import list_processes
    from ..render.process.processes import render_processes

    found = list_processes()
    if not found:
        return RemoteText("no training with probing was found; PROBING=1 starts one with it")
    return RemoteText(render_processes(found, width=100, color=False))


def _parser() -> _Parser:
    parser = _Parser(prog="%%probing", usage=_USAGE.replace("%", "%%"), add_help=False)
    parser.add_argument("endpoint", nargs="?")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--now", action="store_true")
    parser.add_argument("--thread")
    parser.add_argument("--frame", type=int)
    parser.add_argument(_SQL, action="store_true")
    parser.add_argument("--into")
    parser.set_defaults(origin="")
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in a cell, instead of ending the kernel."""

    def error(self, message: str) -> NoReturn:
        """See `argparse`."""
        _refuse(f"{message}; {self.format_usage().strip()}")


def _refuse(sentence: str) -> NoReturn:
    """End the cell with one sentence."""
    from IPython.core.error import UsageError

    raise UsageError(sentence)
