"""What Tab offers in cells of a training: tables and columns in SQL, else names of the process.

Rules of this file: a completion never fails and never waits long; where the process does not
answer, tables are those that every process has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher

from ...errors import ProbingError
from ...messages.limits import ready_s
from ...tables import TABLES, Table
from ..completion import complete_endpoints, sql_words

if TYPE_CHECKING:
    from .cells import Cells

_LINE = re.compile(r"\s*%(?P<cell>%)?probing\b(?P<rest>[^\n]*)(?P<body>\n.*)?\Z", re.DOTALL)


def matcher_for(cells: Cells) -> Callable[[Any], Any]:
    """What IPython asks, for all that it completes; of other cells it offers nothing."""

    def complete(context: Any) -> Any:
        try:
            fragment, words = _offer(context.full_text, _offset(context), cells.endpoint)
        except ProbingError:
            fragment, words = "", ()
        found = [SimpleCompletion(text=word) for word in words]
        return {
            "completions": found, "matched_fragment": fragment, "suppress": bool(found),
            "ordered": True,
        }  # fmt: skip

    complete.__module__ = __name__
    made: Callable[[Any], Any] = context_matcher(identifier="probing")(complete)
    return made


def _offset(context: Any) -> int:
    """Where the cursor is in the whole text."""
    lines = context.full_text.split("\n")
    before = sum(len(line) + 1 for line in lines[: context.cursor_line])
    return int(before + context.cursor_position)


def _offer(text: str, cursor: int, endpoint: str | None) -> tuple[str, Iterable[str]]:
    """What has been typed of a word, and the words that it can become.

    Args:
        endpoint: Whom the notebook keeps for cells that name nobody.
    """
    found = _LINE.match(text[:cursor])
    if found is None:
        return "", ()
    rest, body = found["rest"], found["body"]
    words = rest.split()
    asked = next((word for word in words if not word.startswith("-")), endpoint)
    if body is None and (found["cell"] or len(words) <= 1):
        typed = "" if rest.endswith(" ") else "".join(words[-1:])
        return typed, [item.value for item in complete_endpoints(typed, several=True)]
    written = body if body is not None else rest
    if "--sql" in words:
        offered = sql_words(written, _tables(asked), text[cursor:])
        start = offered[0][0] if offered else len(written)
        return written[start:], [word for _, word in offered]
    line = written.rpartition("\n")[2]
    if asked is None or not line.strip():
        return "", ()
    from ...client.connecting import connect

    names = connect(asked, timeout_s=ready_s()).complete(line, session="notebook")
    return line[names.start :], names.words


def _tables(endpoint: str | None) -> tuple[Table, ...]:
    """All tables of the process; ours where it has gone, or several are meant."""
    from ...client.connecting import connect

    if endpoint is None:
        return TABLES
    try:
        found = connect(endpoint, timeout_s=ready_s()).tables().tables
    except ProbingError:
        return TABLES
    return tuple(table for status in found if (table := status.table()) is not None)
