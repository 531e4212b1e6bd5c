"""The answer to a query: to stdout or a file.

Rules of this file: only commands that take statements import it, when they run. One process answers
by a feed, several as one database of all of their rows. What is only written out as text comes
without pyarrow and numpy, which take longer to load than a short statement to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...messages.frozen import dataclass
from ...messages.limits import grace_s
from ..output import terminal
from ..output.files import write_file
from ..output.terminal import Screen
from ..render.cells import is_number, is_time, plain_texts, short_texts
from ..render.rows import TEXT_WRITERS, WRITERS, Writer, arrow_file_chunks
from ..target import Target
from ..time_limit import held_back, within
from .cutting import as_far_as_they_come
from .feed import Feed
from .replies import tell_notes

_PLAN = ["explain_key", "explain_value"]
"""The columns of the answer to EXPLAIN: a drawing of many lines."""
_GRACE_S = 2.0
"""How long beyond its limit one process may take to say that its statement has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to ask, and how to show the answer.

    Attributes:
        form: One of the formats.
        output: The file to write to; None for stdout.
        max_rows: The most rows to give; 0 for all.
        screen: What stdout can show.
        budget_mib: What several processes may send together; None for the default.
        all_by: What shows all rows, where a table leaves some out.
    """

    sql: str
    form: str
    output: str | None
    max_rows: int
    screen: Screen
    budget_mib: float | None = None
    all_by: str = "-n 0"

    @property
    def limit(self) -> int | None:
        """The most rows to compute; a table counts them all, to say how many it leaves out."""
        return None if self.form == "table" else self.max_rows or None


def answer(target: Target, question: Question) -> int:
    """Ask, and write the rows.

    Returns:
        The exit code.

    Raises:
        ProbingError: There is no answer, or it cannot be written.
    """
    if not target.is_single:
        from .answering_many import answer_many

        with within(target.limit_s, grace_s=grace_s()):
            return answer_many(
                target,
                question.sql,
                lambda schema, batches: write_rows(schema, batches, question),
                max_rows=question.limit,
                budget_mib=question.budget_mib,
            )
    with within(target.limit_s, grace_s=_GRACE_S):
        feed = Feed(
            target,
            target.endpoints[0],
            question.sql,
            max_rows=question.limit,
            is_text=question.form in TEXT_WRITERS,
        )
        write_rows(feed.schema(), feed.batches(), question)
    tell_notes(target, feed.endpoint, feed.notes)
    return 0


def write_rows(schema: Any, batches: Iterable[Any], question: Question) -> None:
    """Write rows as the question asks for.

    Raises:
        ProbingError: They break off, or cannot be written.
    """
    if question.output is None:  # a file is there whole, or not at all
        batches = as_far_as_they_come(batches)
    if question.form == "table" and question.output is None:
        terminal.write(_table(schema, batches, question))
        return
    if question.form == "table":
        chunks: Iterator[bytes] = iter([_table(schema, batches, question).encode()])
    else:
        chunks = _writer(question)(schema, _telling_of_none(batches, question.form))
    if question.output is None:
        terminal.write_chunks(chunks)
    else:
        write_file(question.output, chunks)


def _telling_of_none(batches: Iterable[Any], form: str) -> Iterator[Any]:
    """The batches; that there is no row is told where the format writes nothing for that."""
    total = 0
    for batch in batches:
        total += batch.num_rows
        yield batch
    if not total and form == "jsonl":
        terminal.note("the answer has no rows")


def _writer(question: Question) -> Writer:
    """How to write the format: of Arrow's two, a file gets the one that can be mapped."""
    output = question.output
    if question.form == "arrow" and output and Path(output).suffix.lower() != ".arrows":
        return arrow_file_chunks
    return WRITERS[question.form]


def _table(schema: Any, batches: Iterable[Any], question: Question) -> str:
    """The table of the first rows, and how many there are beside them."""
    if schema.names == _PLAN:
        plans = (text for batch in batches for text in plain_texts(batch.columns[1]))
        return "".join(f"{plan}\n" for plan in plans)
    shown: list[Any] = []
    total = count = 0
    for batch in batches:
        room = question.max_rows - count if question.max_rows else batch.num_rows
        if room > 0:
            shown.append(batch.slice(0, room))
            count += shown[-1].num_rows
        total += batch.num_rows
    with held_back(is_counted=False):  # the limit is for the statement, which has ended
        return _drawn(schema, shown, total, question)


def _drawn(schema: Any, shown: Sequence[Any], total: int, question: Question) -> str:
    """The table of some rows of so many."""
    from ..render.table import Heading, render_table

    kept: list[Sequence[str | None]] = []
    for batch in shown:
        kept += zip(*(short_texts(column) for column in batch.columns), strict=True)
    headings = [
        Heading(name=f.name, is_number=is_number(f.type), is_whole=is_time(f.type)) for f in schema
    ]
    screen = question.screen
    table = render_table(
        headings,
        kept,
        width=screen.width,
        color=screen.color,
        more_rows=total - len(kept),
        all_by=question.all_by,
    )
    return f"{table}\n"
