"""The SQL that a person means: a text, a file, a saved question, with its parameters put in."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UsageError
from ..questions.records import put_in, read_parameters
from .text_input import read_text

_SUFFIX = ".sql"


def statement_of(given: str | None, path: str | None, parameters: Sequence[str] = ()) -> str:
    """The statement.

    Args:
        given: The argument: SQL, ``@NAME``, ``FILE.sql``, or ``-``.
        path: The file that ``-f`` names.
        parameters: As ``NAME=VALUE``.

    Raises:
        UsageError: There is none, it cannot be read, or a parameter does not fit.
    """
    values = read_parameters(parameters)
    if given is not None and given.startswith("@"):
        if path is not None:
            raise UsageError(f"give either {given} or -f FILE, not both.")
        from ..questions.library import find_question

        question = find_question(given[1:])
        return put_in(question.sql, values, question.parameters)
    is_file = given is not None and given.lower().endswith(_SUFFIX) and " " not in given.strip()
    text = read_text("SQL", None, given) if is_file else read_text("SQL", given, path)
    return put_in(text, values) if values else text
