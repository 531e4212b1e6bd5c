"""Cells of a notebook that run in a training: ``%load_ext probing``, then ``%%probing ENDPOINT``.

With ``--sql`` a cell is a statement, and its value the answer, which shows itself as a table.

Rules of this file: runs in the notebook's kernel, at the operator's side, and is imported by
``%load_ext`` alone. IPython is there already then; it is no dependency.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from .client.connecting import connect
from .errors import ProbingError
from .sql.libraries import require_libraries

if TYPE_CHECKING:
    from .sql.answer import Answer

_SQL = "--sql"
_SESSION = "notebook"


class RemoteText(str):
    """The text of a value in another process, shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext probing``."""
    shell.register_magic_function(run_cell, "line_cell", "probing")


def run_cell(line: str, cell: str | None = None) -> RemoteText | Answer | None:
    """Run a cell, or the rest of a line, in the process at an endpoint.

    ``%%probing ENDPOINT [--timeout SECONDS] [--now] [--thread NAME] [--frame N]``, and below it the
    code; or ``%probing ENDPOINT CODE``. ``%%probing ENDPOINT --sql``, and below it a statement; or
    ``%probing --sql ENDPOINT STATEMENT``.
    """
    options, code = _parse(line, cell)
    try:
        require_libraries()
        if options.sql:
            answer = connect(options.endpoint).query(code, timeout_s=options.timeout)
            answer.to_arrow()
            return answer
        result = connect(options.endpoint).eval(
            code,
            timeout_s=options.timeout,
            now=options.now,
            thread=options.thread,
            frame=options.frame,
            session=_SESSION,
        )
    except ProbingError as error:
        way_out = error.help.replace("probing ENDPOINT ", f"probing {options.endpoint} ")
        _refuse(f"{error.message} {way_out}".strip())
    sys.stdout.write(result.output)
    if result.error:
        sys.stderr.write(result.error)
        _refuse(f"the code failed in {options.endpoint}: {result.error_type}")
    return None if result.value is None else RemoteText(result.value)


def _parse(line: str, cell: str | None) -> tuple[argparse.Namespace, str]:
    parser = _Parser(prog="%%probing", add_help=False)
    parser.add_argument("endpoint")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--now", action="store_true")
    parser.add_argument("--thread")
    parser.add_argument("--frame", type=int)
    parser.add_argument("--sql", action="store_true")
    if cell is not None:
        return parser.parse_args(shlex.split(line)), cell
    given = line.strip()
    flags = [_SQL] if given.startswith(f"{_SQL} ") else []
    endpoint, _, code = given.removeprefix(_SQL).strip().partition(" ")
    if not code.strip():
        _refuse("say what to run: %probing ENDPOINT CODE, or %%probing ENDPOINT above a cell.")
    return parser.parse_args([endpoint, *flags]), code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in a cell, instead of ending the kernel."""

    def error(self, message: str) -> NoReturn:
        """See `argparse`."""
        _refuse(f"{message}; {self.format_usage().strip()}")


def _refuse(sentence: str) -> NoReturn:
    """End the cell with one sentence, without a traceback of ours."""
    from IPython.core.error import UsageError

    raise UsageError(sentence)
