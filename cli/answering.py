"""The answer to a query: from one or several feeds to stdout or a file.

Rules of this file: it imports pyarrow, so only the command `query` imports it, when it runs.
The rows of several endpoints become one answer with a first column `endpoint`, in the order in
which the endpoints were named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ..errors import ProbingError, SqlError
from . import terminal
from .asking import tell_notes
from .feed import Feed
from .output import write_file
from .render.cells import is_number, is_time, short_texts
from .render.rows import WRITERS, Writer, arrow_file_chunks, without_dictionaries
from .target import Target
from .terminal import Screen

ENDPOINT_COLUMN = "endpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to ask, and how to show the answer.

    Attributes:
        form: One of the formats.
        output: The file to write to; None for stdout.
        max_rows: The most rows to give; 0 for all.
        screen: What stdout can show.
    """

    sql: str
    form: str
    output: str | None
    max_rows: int
    screen: Screen


def answer(target: Target, question: Question) -> int:
    """Ask every endpoint and write the rows.

    Returns:
        The exit code.

    Raises:
        ProbingError: The only endpoint failed, or the answer cannot be written.
    """
    rows = Rows(target, question)
    if rows.feeds:
        if question.form == "table":
            chunks: Iterator[bytes] = iter([_table(rows, question).encode()])
        else:
            chunks = _writer(question)(rows.schema, rows.batches())
        if question.output is None:
            terminal.write_chunks(chunks)
        else:
            write_file(question.output, chunks)
    for feed in rows.feeds:
        tell_notes(target, feed.endpoint, feed.notes)
    return rows.exit_code


class Rows:
    """The rows of all endpoints that answer.

    Attributes:
        feeds: Those endpoints.
        schema: The columns, `endpoint` first where several were asked.
        exit_code: That of the first endpoint that failed; complete after the last batch.
    """

    def __init__(self, target: Target, question: Question) -> None:
        self._target = target
        self.exit_code = 0
        self.feeds: list[Feed] = []
        # A table is counted to its end, so that it can say how many rows it does not show.
        limit = None if question.form == "table" else question.max_rows or None
        feeds = [Feed(target, name, question.sql, max_rows=limit) for name in target.endpoints]
        schemas = [schema for feed in feeds if (schema := self._begin(feed)) is not None]
        self._own_schema = schemas[0] if schemas else pa.schema([])
        if not target.is_single:
            self._unify(schemas)

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        if self._target.is_single:
            return self._own_schema
        return self._own_schema.insert(0, pa.field(ENDPOINT_COLUMN, pa.string()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, endpoint by endpoint; once."""
        for feed in self.feeds:
            yield from self._rows_of(feed)

    def _begin(self, feed: Feed) -> pa.Schema | None:
        """Wait for the columns of one endpoint; None when it failed."""
        try:
            schema = feed.schema()
        except ProbingError as error:
            self._failed(feed, error)
            return None
        self.feeds.append(feed)
        return schema

    def _rows_of(self, feed: Feed) -> Iterator[pa.RecordBatch]:
        """The rows of one endpoint, up to where it failed if it did."""
        try:
            for batch in feed.batches():
                yield batch if self._target.is_single else self._labelled(feed, batch)
        except ProbingError as error:
            self._failed(feed, error)

    def _failed(self, feed: Feed, error: ProbingError) -> None:
        """End here with one endpoint; go on without it where there are others."""
        if self._target.is_single:
            raise error
        terminal.complain(error, endpoint=feed.endpoint)
        self.exit_code = self.exit_code or error.exit_code

    def _unify(self, schemas: list[pa.Schema]) -> None:
        """Make sure that all endpoints answer with the same columns.

        Raises:
            SqlError: They do not.
        """
        plain = [without_dictionaries(schema).remove_metadata() for schema in schemas]
        for feed, schema in zip(self.feeds, plain, strict=True):
            if schema.names != plain[0].names or schema.types != plain[0].types:
                raise SqlError(
                    f"the endpoints answer with different columns: {self.feeds[0].endpoint} with"
                    f" {_columns(plain[0])}, but {feed.endpoint} with {_columns(schema)}"
                )
        if plain:
            self._own_schema = plain[0]

    def _labelled(self, feed: Feed, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the endpoint's name in front."""
        names = pa.repeat(pa.scalar(feed.endpoint, pa.string()), batch.num_rows)
        columns = batch.cast(self._own_schema).columns
        return pa.RecordBatch.from_arrays([names, *columns], schema=self.schema)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


def _writer(question: Question) -> Writer:
    """How to write the format: of Arrow's two, a file gets the one that can be mapped."""
    output = question.output
    if question.form == "arrow" and output and Path(output).suffix.lower() != ".arrows":
        return arrow_file_chunks
    return WRITERS[question.form]


def _table(rows: Rows, question: Question) -> str:
    """The table of the first rows, and how many there are beside them."""
    from .render.table import Heading, render_table

    kept: list[list[str | None]] = []
    total = 0
    for batch in rows.batches():
        room = question.max_rows - len(kept) if question.max_rows else batch.num_rows
        if room > 0:
            columns = [short_texts(column) for column in batch.slice(0, room).columns]
            kept += map(list, zip(*columns, strict=True))
        total += batch.num_rows
    headings = [
        Heading(name=f.name, is_number=is_number(f.type), is_whole=is_time(f.type))
        for f in rows.schema
    ]
    screen = question.screen
    table = render_table(
        headings, kept, width=screen.width, color=screen.color, more_rows=total - len(kept)
    )
    return f"{table}\n"
