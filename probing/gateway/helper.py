"""Answers one question: ``python -m probing.gateway.helper``, of which a server keeps one waiting.

Rules of this file: it is started before it is asked, so that no statement waits for what it
imports. What is asked comes on stdin as JSON in one line; an Arrow stream goes to stdout as it is
computed; an error goes to stderr, with exit code 1, also in the middle of rows, which have no end
mark then. It ends with whoever has started it, whose end of stdin is closed then.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import pyarrow as pa

from ..cluster.job.members import find_members
from ..cluster.job.outcomes import why_nobody
from ..cluster.union.query import Union
from ..errors import InternalError, NoHistory, ProbingError, SqlError, SqlTooLarge, StoreUnreachable
from ..history.query import History, statement_memory_mib
from ..history.tables import in_history
from ..linux.limited_memory import limit_memory
from ..messages import common as wire
from ..messages.limits import grace_s
from ..ring.arrow_tables import schema_of
from ..sql.database import load_whole
from ..sql.process_columns import with_ranks
from ..sql.quoting import text_literal
from ..tables import TABLES as ALL_TABLES, Table
from .asked import HISTORY, LIVE, ROWS, SCHEMA, Asked, Place, meant, with_history

_TIMES_A_STATEMENT = 2
"""So much of what the engine may use for a statement is the whole process's."""
_TABLES = pa.schema(
    [
        ("catalog_name", pa.string()),
        ("db_schema_name", pa.string()),
        ("table_name", pa.string()),
        ("doc", pa.string()),
        ("table_schema", pa.binary()),
    ]
)


def main() -> int:
    """Answer what stdin asks; returns the exit code."""
    limit_memory(_TIMES_A_STATEMENT * statement_memory_mib())
    load_whole()
    asked = _read(sys.stdin.buffer.readline())
    if asked is None:
        return 0
    threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        with contextlib.closing(_answer(asked)) as batches:
            _send(batches)
    except ProbingError as error:
        return _complain(error)
    except MemoryError:  # Arrow's is one, too
        return _complain(SqlTooLarge("the statement needs too much memory"))
    except pa.ArrowException as error:
        return _complain(InternalError(f"{type(error).__name__}: {error}"))
    return 0


def _send(batches: Iterator[Any]) -> None:
    """Write the schema and the batches as they come, and after the last the mark of the end.

    The writer is no context manager here: left by an error, it would write that mark, too.
    """
    sink = sys.stdout.buffer
    writer = pa.ipc.new_stream(sink, next(batches))
    sink.flush()
    for batch in batches:
        writer.write_batch(batch)
        sink.flush()
    writer.close()
    sink.flush()


def _read(line: bytes) -> Asked | None:
    """What is asked; None where the starter has gone."""
    if not line:
        return None
    words: dict[str, Any] = json.loads(line)
    place = words.pop("place")
    return Asked(
        place=Place(endpoints=tuple(place["endpoints"]), history=place["history"]), **words
    )


def _end_with_starter() -> None:
    """End at once when stdin does."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


def _complain(error: ProbingError) -> int:
    sys.stderr.buffer.write(wire.encode_error(error))
    sys.stderr.buffer.flush()
    return 1


def _answer(asked: Asked) -> Generator[Any, None, None]:
    """The schema, then batches."""
    if asked.kind not in {ROWS, SCHEMA}:
        yield _TABLES
        yield from _tables(asked).to_batches()
        return
    catalog, sql = meant(asked.sql, asked.place)
    rows = _kept if catalog == HISTORY else _alive
    yield from rows(asked, sql)


def _kept(asked: Asked, sql: str) -> Iterator[Any]:
    """Of a history."""
    history = _history(asked)
    if asked.kind == SCHEMA:
        yield history.schema(sql, timeout_s=asked.timeout_s)
        return
    with history.query(sql, timeout_s=asked.timeout_s) as answer:
        yield _with_notes(answer.schema, dict.fromkeys(history.notes))
        yield from answer.batches()


def _history(asked: Asked) -> History:
    place = asked.place
    history = History(place.history, timeout_s=asked.timeout_s)
    history.catalog, history.is_alone = HISTORY, not place.endpoints
    return history


def _alive(asked: Asked, sql: str) -> Iterator[Any]:
    """Of live processes.

    Raises:
        ProbingError: There are none, or none has answered.
    """
    found = find_members(asked.place.endpoints)
    union = Union(found.members)
    try:
        if asked.kind == SCHEMA:
            yield union.schema(sql, timeout_s=asked.timeout_s)
            return
        answer = union.query(sql, timeout_s=asked.timeout_s)
    except SqlError as error:
        raise (with_history(error) if asked.place.history else error) from None
    with answer.answer:
        if (lost := why_nobody(answer.outcomes)) is not None:
            raise lost
        errors = [outcome.error for outcome in answer.outcomes if outcome.error is not None]
        coverage = answer.coverage
        words = [] if coverage.is_complete else [coverage.words()]
        told = [*words, *(error.message for error in errors), *found.notes, *answer.notes]
        yield _with_notes(answer.answer.schema, dict.fromkeys(told))
        yield from answer.answer.batches()


def _with_notes(schema: pa.Schema, notes: Iterable[str]) -> pa.Schema:
    """The columns, with what is to be known of the answer."""
    told = list(notes)
    return schema.with_metadata({wire.NOTES_KEY: json.dumps(told).encode()}) if told else schema


def _tables(asked: Asked) -> pa.Table:
    """Every table that can be asked."""
    found: list[dict[str, Any]] = []

    def add(catalog: str, table: Table, columns: pa.Schema | None) -> None:
        found.append(
            {
                "catalog_name": catalog,
                "db_schema_name": table.schema,
                "table_name": table.name,
                "doc": table.doc,
                "table_schema": None if columns is None else columns.serialize().to_pybytes(),
            }
        )

    if asked.place.endpoints:
        for table in (*ALL_TABLES, *_own_tables(asked)):
            add(LIVE, table, schema_of(with_ranks(table)) if asked.with_schemas else None)
    if asked.place.history:
        # Live tables are listed though a history is empty yet, or its store away.
        passed_over = (NoHistory, StoreUnreachable) if asked.place.endpoints else ()
        with contextlib.suppress(*passed_over):
            for table, columns in list(_kept_tables(asked)):
                add(HISTORY, table, columns)
    return pa.Table.from_pylist(found, _TABLES)


def _kept_tables(asked: Asked) -> Iterator[tuple[Table, pa.Schema | None]]:
    """Those of a history."""
    tables = _history(asked).tables()
    grown = _grown(asked, tables) if asked.with_schemas else frozenset()
    for table in tables:
        yield table, _kept_columns(asked, table, grown) if asked.with_schemas else None


def _own_tables(asked: Asked) -> tuple[Table, ...]:
    """Those that scripts have declared; none where no process lives now."""
    try:
        members = find_members(asked.place.endpoints).members
        return Union(members).own_tables(asked.timeout_s)
    except ProbingError:
        return ()


def _grown(asked: Asked, tables: Iterable[Table]) -> frozenset[str]:
    """The kept tables whose files have more columns than are declared.

    None where that cannot be found out soon, for a busy machine: a list of all others is better
    than no list.
    """
    declared = {
        (table.name, column.name) for table in tables for column in in_history(table).columns
    }
    named = ", ".join(text_literal(table.name) for table in tables)  # so that all are opened
    there = f"duckdb_columns() WHERE table_name IN ({named})"
    sql = f"SELECT table_name, column_name FROM {there}"  # noqa: S608 - of literals
    try:
        limit_s = min(asked.timeout_s, grace_s())
        with _history(asked).query(sql, timeout_s=limit_s) as answer:
            found = {(row["table_name"], row["column_name"]) for row in answer.to_pylist()}
    except ProbingError:
        return frozenset()
    return frozenset(name for name, _ in found - declared)


def _kept_columns(asked: Asked, table: Table, grown: frozenset[str]) -> pa.Schema:
    """Those that are declared, then those that only its files have."""
    columns = schema_of(in_history(table))
    if table.columns and table.name not in grown:
        return columns
    name = ".".join(f'"{word}"' for word in (HISTORY, table.schema, table.name))
    there = _history(asked).schema(f"FROM {name}", timeout_s=asked.timeout_s)
    return pa.schema([*columns, *(one for one in there if one.name not in columns.names)])


if __name__ == "__main__":
    os._exit(main())  # the engine's library would wait for what was asked last
