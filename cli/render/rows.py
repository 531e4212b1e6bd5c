"""The rows of an answer, batch by batch, in each machine format.

Rules of this file: generators of bytes; a batch is written before the next one is asked for, so
that an answer of any size passes through little memory and its first rows leave at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from .cells import is_number, json_texts, plain_texts

if TYPE_CHECKING:
    import pyarrow as pa

Batches = Iterable[Any]
"""Batches of Arrow, or of `probing.sql.plain`."""
Writer = Callable[[Any, Batches], Iterator[bytes]]

_SLICE = 8192


def jsonl_chunks(schema: Any, batches: Batches) -> Iterator[bytes]:
    """One JSON object per line."""
    for lines in _json_objects(schema, batches):
        yield "".join(f"{line}\n" for line in lines).encode()


def json_chunks(schema: Any, batches: Batches) -> Iterator[bytes]:
    """One JSON array of objects, an object per line."""
    opening = "["
    for lines in _json_objects(schema, batches):
        yield (opening + "\n" + ",\n".join(lines)).encode()
        opening = ","
    yield b"[]\n" if opening == "[" else b"\n]\n"


def csv_chunks(schema: Any, batches: Batches) -> Iterator[bytes]:
    """Comma-separated values with a header; NULL is nothing, an empty text a pair of quotes.

    In an answer of one column NULL is such a pair, too: readers pass over empty lines.
    """
    yield (",".join(_csv_cell(name) for name in schema.names) + "\n").encode()
    null = '""' if len(schema.names) == 1 else ""
    for batch in _slices(batches):
        columns = [[_csv_cell(text, null) for text in plain_texts(c)] for c in batch.columns]
        lines = [",".join(cells) for cells in zip(*columns, strict=True)]
        yield "".join(f"{line}\n" for line in lines).encode()


def markdown_chunks(schema: Any, batches: Batches) -> Iterator[bytes]:
    """A table of GitHub-flavoured Markdown."""
    head = " | ".join(_markdown_cell(name) for name in schema.names)
    rule = " | ".join("---:" if is_number(field.type) else "---" for field in schema)
    yield f"| {head} |\n| {rule} |\n".encode()
    for batch in _slices(batches):
        columns = [[_markdown_cell(text) for text in plain_texts(c)] for c in batch.columns]
        lines = [f"| {' | '.join(cells)} |\n" for cells in zip(*columns, strict=True)]
        yield "".join(lines).encode()


def arrow_stream_chunks(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """An Arrow IPC stream."""
    import pyarrow as pa

    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


def arrow_file_chunks(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """An Arrow IPC file, which readers can map and read in any order."""
    import pyarrow as pa

    schema = without_dictionaries(schema)
    sink = _Sink()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:  # no cast of all of it: that of a map without keys ends the process
            columns = [
                column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                for column in batch.columns
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            yield sink.take()
    yield sink.take()


def parquet_chunks(schema: pa.Schema, batches: Batches) -> Iterator[bytes]:
    """A Parquet file.

    Raises:
        UsageError: It has a column that Parquet cannot hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = _Sink()
    schema = pa.schema(
        [field.with_name(name) for field, name in zip(schema, unique_names(schema), strict=True)],
        schema.metadata,
    )
    try:
        writer = pq.ParquetWriter(sink, schema)
    except pa.ArrowException as error:
        raise UsageError(
            f"Parquet cannot hold this answer: {error}.", help="Cast that column in the SQL."
        ) from None
    with writer:
        for batch in batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            yield sink.take()
    yield sink.take()


def unique_names(schema: Any) -> list[str]:
    """The column names, a repeated one with a number: ``a``, ``a_1``."""
    names: list[str] = []
    for name in schema.names:
        unique, number = name, 0
        while unique in names:
            number += 1
            unique = f"{name}_{number}"
        names.append(unique)
    return names


class _Sink:
    """Where an Arrow writer puts its bytes until they are taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Keep a copy: the writer may reuse its buffer."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing to release; what was written can still be taken."""

    def take(self) -> bytes:
        """What was written since the last time."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def _slices(batches: Batches) -> Iterator[Any]:
    """The batches in portions small enough to write the first one soon."""
    for batch in batches:
        for start in range(0, batch.num_rows, _SLICE):
            yield batch.slice(start, _SLICE)


def _json_objects(schema: Any, batches: Batches) -> Iterator[list[str]]:
    keys = [encode_basestring(name) for name in unique_names(schema)]
    template = "{" + ",".join(f"{key.replace('%', '%%')}:%s" for key in keys) + "}"
    for batch in _slices(batches):
        columns = [json_texts(column) for column in batch.columns]
        yield [template % cells for cells in zip(*columns, strict=True)]


def _csv_cell(text: str | None, null: str = "") -> str:
    if text is None:
        return null
    if not text or any(character in text for character in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


def _markdown_cell(text: str | None) -> str:
    if text is None:
        return ""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionaries: a file, unlike a stream, cannot replace them midway."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)


WRITERS: dict[str, Writer] = {
    "json": json_chunks,
    "jsonl": jsonl_chunks,
    "csv": csv_chunks,
    "arrow": arrow_stream_chunks,
    "parquet": parquet_chunks,
    "markdown": markdown_chunks,
}
TEXT_WRITERS = frozenset({"table", "json", "jsonl", "csv", "markdown"})
"""The formats that are written of the texts of values alone."""
