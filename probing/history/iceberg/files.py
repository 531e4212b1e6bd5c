"""Which files an Iceberg table over a history has, and what Iceberg is told of each.

Rules of this file: a file of a history has no columns for the names of its folders. Iceberg takes
their values from what it is told of the file, as the format has it for tables that come from Hive.
Only finished files count: those that are not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
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
from ..compaction.settled import Settled
from ..files import line_of, plain_schema
from ..layout import files_in, unquoted
from ..swap import replaced
from .catalog import FOLDERS, uri_of


@dataclass(frozen=True, slots=True)
class Finished:
    """A file that is not written again.

    Attributes:
        uri: What Iceberg calls it.
        columns: Those of its rows.
    """

    path: Path
    uri: str
    metadata: Any
    columns: pa.Schema

    @property
    def folders(self) -> tuple[str | None, ...]:
        """The values that its folders stand for."""
        keys = dict(part.split("=", 1) for part in self.path.parts if "=" in part)
        return tuple(unquoted(keys[name]) for name in FOLDERS)


def finished_in(
    root: Path, table: str, folders: Sequence[Path], settled: Settled, notes: list[str]
) -> tuple[list[Finished], int]:
    """The finished files of a table, and how many others there are; by who keeps them there.

    Args:
        notes: Gets a sentence about each that is damaged.
    """
    gone, found, others = replaced(root), [], 0
    for path in (path for folder in folders for path in files_in(folder)):
        if path in gone:
            continue
        if not settled.is_settled(path, table):
            others += 1
            continue
        try:
            metadata = pq.read_metadata(path)
            columns = plain_schema(metadata.schema.to_arrow_schema().remove_metadata())
        except (OSError, pa.ArrowException) as error:
            notes.append(f"the file {path} is damaged, and left out: {line_of(error)}")
            continue
        found.append(Finished(path, uri_of(path), metadata, columns))
    return found, others


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
            notes.append(f"the file {file.path} is left out: {line_of(error)}")
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
        file_path=file.uri,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.folders),
        file_size_in_bytes=file.path.stat().st_size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
