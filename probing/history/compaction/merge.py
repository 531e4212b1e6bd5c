"""One Parquet file of several: the same rows, in their order.

Rules of this file: nothing is held but a piece of rows, and no number is believed: what was written
is counted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DamagedHistory, HistoryUnwritable
from ...messages.frozen import dataclass
from ...ring.arrow_tables import in_schema
from ..files import ROWS_AT_ONCE, line_of, plain_schema, saying_what_failed, writer_of
from ..merged import MERGED, Said, said_by

_MOST_BYTES = 64 << 20
_MOST_FILES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A file of a history, as it was when it was looked at.

    Attributes:
        name: The path of one in a folder, the name of an object.
        version: What tells it from a later one of that name.
    """

    name: str
    size: int
    version: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """The same, at hand.

    Attributes:
        path: Where it can be read.
        shown: What it is called in words.
    """

    placed: Placed
    path: Path
    shown: str

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.placed.size


def together(files: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Files in their order, no more at once than one file should be made of."""
    some: list[Placed] = []
    for file in files:
        if len(some) == _MOST_FILES or sum(one.size for one in some) + file.size > _MOST_BYTES:
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def alike(files: Sequence[Near], notes: list[str]) -> tuple[list[Near], list[Near]]:
    """Those whose columns fit together with the first one's, and the others.

    Args:
        notes: Gets a sentence about each that is damaged.
    """
    schema, fits, others = pa.schema([]), [], []
    for file in files:
        try:
            schema = pa.unify_schemas([schema, _schema_in(file)])
        except DamagedHistory as error:
            notes.append(f"{error.message} It stays as it is.")
        except pa.ArrowException:
            others.append(file)
        else:
            fits.append(file)
    return fits, others


def _schema_in(file: Near) -> pa.Schema:
    """The columns of a file.

    Raises:
        DamagedHistory: It cannot be read.
    """
    with _saying_which(file):
        return pq.read_schema(file.path).remove_metadata()


def footer_of(source: Path | pa.NativeFile, shown: str, notes: list[str]) -> pq.FileMetaData | None:
    """What a file says of its rows; None of one that is not there, or is damaged.

    Args:
        shown: What it is called in words.
        notes: Gets a sentence about one that is damaged.
    """
    try:
        return pq.read_metadata(source)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        notes.append(f"{DamagedHistory(shown, line_of(error)).message} It stays as it is.")
        return None


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


def merge(root: Path, files: Sequence[Near], new: Path, change: Change | None = None) -> int:
    """Make a file that has the rows of others, on the disk; returns how many these are.

    Args:
        change: What becomes of the rows; None where they stay as they are.

    Raises:
        DamagedHistory: One of them is damaged.
        HistoryUnwritable: The new one cannot be written whole.
    """
    schema, rows, said, change = pa.schema([]), 0, Said(), change or Change()
    for one in files:
        schema = pa.unify_schemas([schema, _schema_in(one)])
        with _saying_which(one):
            rows += change.count_before(one.path)
            said.add(said_by(one.path))
    schema = change.schema(plain_schema(schema))
    with saying_what_failed(root):
        new.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            written = 0
            with writer_of(file, schema.with_metadata({MERGED: said.to_bytes()})) as writer:
                for piece in change.pieces(_pieces(files, schema)):
                    writer.write_table(piece)
                    written += change.count(piece)
            file.flush()
            os.fsync(file.fileno())
    if written != rows:
        raise HistoryUnwritable(str(root), f"{rows:,} rows were to be put together, not {written}")
    return rows


def _pieces(files: Sequence[Near], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of some files, so many at once as make a row group."""
    waiting: list[pa.Table] = []
    for one in files:
        for rows in _rows(one, schema):
            waiting.append(rows)
            if sum(one.num_rows for one in waiting) >= ROWS_AT_ONCE:
                yield pa.concat_tables(waiting)
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _rows(one: Near, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file with the columns of all; NULL where it lacks one."""
    with _saying_which(one), pq.ParquetFile(one.path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            yield in_schema(pa.Table.from_batches([batch]), schema)


@contextlib.contextmanager
def _saying_which(file: Near) -> Iterator[None]:
    """Turn what is wrong with a file into an error that names it."""
    try:
        yield
    except DamagedHistory as error:
        raise DamagedHistory(file.shown, error.reason) from None
    except (OSError, pa.ArrowException) as error:
        raise DamagedHistory(file.shown, line_of(error)) from None
