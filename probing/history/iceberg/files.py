"""Which files an Iceberg table over a history has, and what Iceberg is told of each.

Rules of this file: a file of a history has no columns for the names of its folders. Iceberg takes
their values from what it is told of the file, as the format has it for tables that come from Hive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from ...messages.frozen import dataclass
from ..files import line_of, plain_schema
from ..layout import unquoted, values_in
from .catalog import FOLDERS

_MOST_NEW, _MOST_GONE = 2_000, 10_000
"""What a commit takes in and takes out, about: each takes 60 KiB of memory meanwhile."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A file that is not written again.

    Attributes:
        name: What the history calls it.
        url: What Iceberg calls it.
        columns: Those of its rows.
    """

    name: str
    url: str
    size: int
    metadata: pq.FileMetaData
    columns: pa.Schema

    @property
    def folders(self) -> tuple[str | None, ...]:
        """The values that its folders stand for."""
        names = values_in(self.name)
        return tuple(unquoted(names[column]) for column in FOLDERS)


def finished(name: str, url: str, size: int, metadata: pq.FileMetaData) -> Finished:
    """A file whose footer was read.

    Raises:
        ArrowException: It has columns that Arrow does not know.
    """
    columns = plain_schema(metadata.schema.to_arrow_schema().remove_metadata())
    return Finished(name, url, size, metadata, columns)


def portions(
    old: Iterable[DataFile], new: Iterable[tuple[str, str]]
) -> Iterator[tuple[list[DataFile], list[str]]]:
    """What a table loses and gains, in portions for a commit each.

    One file takes the place of others of its folder: they are in one portion.

    Args:
        new: The names of files, and what Iceberg calls them.
    """
    folders: dict[str, tuple[list[DataFile], list[str]]] = {}
    for file in old:
        folders.setdefault(file.file_path.rpartition("/")[0], ([], []))[0].append(file)
    for name, url in new:
        folders.setdefault(url.rpartition("/")[0], ([], []))[1].append(name)
    gone, come = list[DataFile](), list[str]()
    for files, names in folders.values():
        most = max(1, len(names)) if files else _MOST_NEW
        for at in range(0, max(1, len(names)), most):
            some = names[at : at + most]
            if (come and len(come) + len(some) > _MOST_NEW) or len(gone) > _MOST_GONE:
                yield gone, come
                gone, come = [], []
            gone += files
            come += some
    if gone or come:
        yield gone, come


def columns_of(
    known: pa.Schema, files: Sequence[Finished], notes: list[str]
) -> tuple[pa.Schema, list[Finished]]:
    """The columns of a table and of files of it, and the files whose columns fit together.

    Args:
        known: Those that the table has already.
        notes: Gets a sentence about each file that does not fit.
    """
    fits = []
    for file in files:
        try:
            known = pa.unify_schemas([known, file.columns])
        except pa.ArrowException as error:
            notes.append(f"the file {file.name} is left out: {line_of(error)}")
        else:
            fits.append(file)
    for name in FOLDERS:
        if name not in known.names:
            known = known.append(pa.field(name, pa.string()))
    return known, fits


def known_files(table: Any) -> Iterator[DataFile]:
    """The files that a table has now."""
    snapshot = table.current_snapshot()
    for manifest in () if snapshot is None else snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def told(file: Finished, metadata: Any) -> DataFile:
    """A file as a table is told of it.

    Args:
        metadata: That of the table, with the columns of the file in it.
    """
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=file.metadata,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.url,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.folders),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
