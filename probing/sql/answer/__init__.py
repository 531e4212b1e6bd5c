"""The answer to a query: Arrow, whoever computed it.

Rules of this file: an answer owns what it reads from (an engine's database, an agent's
connection) and lets go of it at its end, when it is closed, or at interpreter exit. It knows
no SQL and no transport; both are given as a `BatchSource`. An answer that broke off is an
error, never a short answer.
"""

from __future__ import annotations

import importlib
import io
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from ...errors import MissingLibrary, Unreachable, UsageError
from ...messages.common import TRUNCATED_KEY
from ...messages.frozen import InNotebooks
from .values import may_be_times, python_values

_BAD_BYTES = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError)
"""What pyarrow raises over bytes that are no IPC stream, or not all of one."""
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class BatchSource(Protocol):
    """Where the rows of an answer come from."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def truncated(self) -> str | None:
        """Why the answer was cut; known at the latest after the last batch."""

    def read(self) -> pa.RecordBatch | None:
        """The next batch; None after the last.

        Raises:
            ProbingError: The rest cannot be had.
        """

    def close(self) -> None:
        """Let go of everything; calling it again does nothing."""


class ByteStream(Protocol):
    """A binary file that is read from front to back."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""

    def close(self) -> None:
        """Let go of the file."""


class Rows(InNotebooks):
    """The rows of an answer, in the forms in which programs take them.

    polars, DuckDB, pyarrow and narwhals take them as they are, without a copy, by the Arrow C
    stream protocol. A loop over them gives a dictionary for each row, and so does
    `pandas.DataFrame(rows)` read them.
    """

    def to_arrow(self) -> pa.Table:
        """All rows as one table.

        Raises:
            ProbingError: They cannot be had.
        """
        raise NotImplementedError

    @property
    def truncated(self) -> str | None:
        """A sentence that says why rows are missing; None while the answer is whole."""
        return None

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as Python values, a dictionary each.

        Times are datetimes, to the microsecond; one that is none of Python's, such as
        `infinity`, is a text.
        """
        table = self.to_arrow()
        if not any(may_be_times(field.type) for field in table.schema):
            rows: list[dict[str, Any]] = table.to_pylist()
            return rows
        names, columns = table.column_names, map(python_values, table.columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def rows(self) -> list[dict[str, Any]]:
        """All rows as Python values, a dictionary each."""
        return self.to_pylist()

    def arrow(self) -> pa.Table:
        """All rows as a table of pyarrow."""
        return self.to_arrow()

    def df(self) -> Any:
        """All rows as a `pandas.DataFrame`.

        Raises:
            MissingLibrary: pandas is not installed.
        """
        _need("pandas")
        return self.to_arrow().to_pandas()

    def pl(self) -> Any:
        """All rows as a `polars.DataFrame`.

        Raises:
            MissingLibrary: polars is not installed.
        """
        return _need("polars").DataFrame(self.to_arrow())

    def __arrow_c_schema__(self) -> Any:
        return self.to_arrow().schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each row as a dictionary."""
        return iter(self.to_pylist())

    def __len__(self) -> int:
        """How many rows there are."""
        return int(self.to_arrow().num_rows)


class Answer(Rows):
    """Rows with their types, read once as a stream or kept as one table."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._table: pa.Table | None = None
        self._is_read = False
        self._finalizer = weakref.finalize(self, source.close)

    @classmethod
    def from_ipc(cls, stream: ByteStream | bytes) -> Answer:
        """The answer that arrives as an Arrow IPC stream, whole or to be read piece by piece.

        Raises:
            Unreachable: The stream breaks off, or is none.
        """
        return cls(_IpcSource(io.BytesIO(stream) if isinstance(stream, bytes) else stream))

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._source.schema

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return list(self.schema.names)

    @property
    def truncated(self) -> str | None:
        """A sentence that says why rows are missing; None while the answer is whole."""
        return self._source.truncated

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, piece by piece as they are computed.

        Raises:
            UsageError: The answer has been streamed before.
            ProbingError: The rest cannot be had.
        """
        if self._table is not None:
            yield from self._table.to_batches()
            return
        if self._is_read:
            raise UsageError(
                "the answer has been read already",
                help="Call to_arrow() first to keep it; that may be called again and again.",
            )
        self._is_read = True
        try:
            while (batch := self._source.read()) is not None:
                yield batch
        finally:
            self.close()

    def to_arrow(self) -> pa.Table:
        """All rows as one table, which is kept.

        Raises:
            ProbingError: The rest cannot be had.
        """
        if self._table is None:
            self._table = pa.Table.from_batches(self.batches(), schema=self.schema)
        return self._table

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def close(self) -> None:
        """Stop what still computes the answer and let go of it; kept rows stay."""
        self._finalizer()

    def __enter__(self) -> Answer:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        rows = "not read yet" if self._table is None else f"{self._table.num_rows:,} rows"
        return f"<Answer: {rows}; {columns}>"


def _need(library: str) -> Any:
    """A library that probing itself does without.

    Raises:
        MissingLibrary: It is not installed.
    """
    try:
        return importlib.import_module(library)
    except ImportError:
        raise MissingLibrary(library) from None


class _IpcSource:
    """Batches out of an Arrow IPC stream."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = _WholeStream(stream)
        try:
            self._reader = pa.ipc.open_stream(self._stream)
            schema = self._reader.schema
            metadata, _ = dict(schema.metadata or {}), schema.names  # names are decoded here
        except _BAD_BYTES as error:
            self._stream.close()
            raise _broken(error) from error
        except BaseException:
            self._stream.close()
            raise
        cut = metadata.pop(TRUNCATED_KEY, None)
        self.schema: pa.Schema = schema.with_metadata(metadata or None)
        self.truncated: str | None = None if cut is None else cut.decode("utf-8", "replace")

    def read(self) -> pa.RecordBatch | None:
        """The next batch; None after the last."""
        try:
            batch = self._reader.read_next_batch()
            _verify(batch)
            return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        except StopIteration:
            self._stream.verify_end()
            return None
        except _BAD_BYTES as error:
            raise _broken(error) from error

    def close(self) -> None:
        """Let go of the stream."""
        self._stream.close()


def _verify(batch: pa.RecordBatch) -> None:
    """Look through all of it: what reads it later trusts every offset in it.

    Decimal numbers have none, and DuckDB's largest integers come as some of more digits than their
    type says.

    Raises:
        pa.ArrowInvalid: It is damaged.
    """
    batch.validate()
    for column in batch.columns:
        column.validate(full=not pa.types.is_decimal(column.type))


class _WholeStream:
    """A file for pyarrow that gives all bytes asked for, and knows how the stream ended.

    pyarrow takes the end of the file for the end of the answer; only the mark that closes an
    IPC stream is one.
    """

    closed = False

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._tail = b""
        self._is_short = False

    def read(self, size: int = -1) -> bytes:
        """Exactly `size` bytes, fewer only at the end of the file."""
        parts, missing = [], size
        while missing > 0:
            part = self._read_some(missing)
            if not part:
                self._is_short = True
                break
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts)
        self._tail = (self._tail + data[-8:])[-8:]
        return data

    def _read_some(self, size: int) -> bytes:
        from http.client import HTTPException  # loaded already where an answer comes by HTTP

        try:
            return self._stream.read(size)
        except (OSError, HTTPException) as error:
            raise _broken(error) from error

    def verify_end(self) -> None:
        """Check that the stream was closed by its mark.

        Raises:
            Unreachable: It broke off.
        """
        if self._is_short or self._tail != _END_OF_STREAM:
            raise _broken(None)

    def close(self) -> None:
        """Let go of the file."""
        if not self.closed:
            self.closed = True
            self._stream.close()


def _broken(error: Exception | None) -> Unreachable:
    """The error of a stream that is not whole."""
    why = f" ({str(error).splitlines()[0]})" if error is not None and str(error) else ""
    return Unreachable(
        f"the answer is not whole{why}.",
        help="The process or its agent may have ended meanwhile, or what came is damaged; the"
        " question is not at fault. Ask again to see.",
    )
