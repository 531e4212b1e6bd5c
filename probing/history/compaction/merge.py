"""One Parquet file of several: the same rows, in their order.

Rules of this file: nothing is held but a piece of rows, and no number is believed: what was written
is counted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DamagedHistory, HistoryUnwritable
from ...ring.arrow_tables import in_schema
from ..files import ROWS_AT_ONCE, line_of, plain_schema, saying_what_failed, writer_of
from ..merged import MERGED, Said, said_by

_MOST_BYTES = 64 << 20
_MOST_FILES = 1000


class SizedFile(Protocol):
    """A file that may be put together with others."""

    @property
    def path(self) -> Path:
        """Where it can be read."""

    @property
    def size(self) -> int:
        """Its bytes."""


F = TypeVar("F", bound=SizedFile)


def together(files: Sequence[F]) -> Iterator[list[F]]:
    """Files in their order, no more at once than one file should be made of."""
    some: list[F] = []
    for file in files:
        if len(some) == _MOST_FILES or sum(one.size for one in some) + file.size > _MOST_BYTES:
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def alike(files: Sequence[F], notes: list[str]) -> tuple[list[F], list[F]]:
    """Those whose columns fit together with the first one's, and the others.

    Args:
        notes: Gets a sentence about each that is damaged.
    """
    schema, fits, others = pa.schema([]), [], []
    for file in files:
        try:
            schema = pa.unify_schemas([schema, schema_in(file.path)])
        except DamagedHistory as error:
            notes.append(f"{error.message} It stays as it is.")
        except pa.ArrowException:
            others.append(file)
        else:
            fits.append(file)
    return fits, others


def schema_in(path: Path) -> pa.Schema:
    """The columns of a file.

    Raises:
        DamagedHistory: It cannot be read.
    """
    with _saying_which(path):
        return pq.read_schema(path).remove_metadata()


class Change:
    """What becomes of rows on their way; here they stay as they are."""

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns then."""
        return schema

    def pieces(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The rows then; those that come in have these columns already."""
        return pieces

    def count(self, piece: pa.Table) -> int:
        """How many rows of before some rows stand for."""
        return int(piece.num_rows)

    def count_before(self, path: Path) -> int:
        """How many rows of before those of a file stand for."""
        return int(pq.read_metadata(path).num_rows)


def merge(root: Path, paths: Sequence[Path], new: Path, change: Change | None = None) -> int:
    """Make a file that has the rows of others, on the disk; returns how many these are.

    Args:
        change: What becomes of the rows; None where they stay as they are.

    Raises:
        DamagedHistory: One of them is damaged.
        HistoryUnwritable: The new one cannot be written whole.
    """
    schema, rows, said, change = pa.schema([]), 0, Said(), change or Change()
    for path in paths:
        schema = pa.unify_schemas([schema, schema_in(path)])
        with _saying_which(path):
            rows += change.count_before(path)
        said.add(said_by(path))
    schema = change.schema(plain_schema(schema))
    with saying_what_failed(root):
        new.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            written = 0
            with writer_of(file, schema.with_metadata({MERGED: said.to_bytes()})) as writer:
                for piece in change.pieces(_pieces(paths, schema)):
                    writer.write_table(piece)
                    written += change.count(piece)
            file.flush()
            os.fsync(file.fileno())
    if written != rows:
        raise HistoryUnwritable(str(root), f"{rows:,} rows were to be put together, not {written}")
    return rows


def _pieces(paths: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of some files, so many at once as make a row group."""
    waiting: list[pa.Table] = []
    for path in paths:
        for rows in _rows(path, schema):
            waiting.append(rows)
            if sum(one.num_rows for one in waiting) >= ROWS_AT_ONCE:
                yield pa.concat_tables(waiting)
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _rows(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file with the columns of all; NULL where it lacks one."""
    with _saying_which(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            yield in_schema(pa.Table.from_batches([batch]), schema)


@contextlib.contextmanager
def _saying_which(path: Path) -> Iterator[None]:
    """Turn what is wrong with a file into an error that names it."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise DamagedHistory(str(path), line_of(error)) from None
