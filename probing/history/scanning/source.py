"""What a query asks of the place where a history is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ..compaction.settled import Settled

PARTITIONS = ("project", "job", "table", "day")
"""The columns that folders say."""
FILE_OF_A_ROW = "the file of a row"
"""A column that no table has."""


class TornFile(Exception):
    """A file cannot be read; the others can.

    Attributes:
        name: Which one.
        reason: Why.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason


class Source(Protocol):
    """A place with the files of a history; folders and files go by their names in full.

    Attributes:
        name: What the place is called.
        store: What it is called where time is up, with the server that is asked; "" of a folder.
        allowed: Folders of this machine that the database may read, with a slash at their ends.
    """

    name: str
    store: str
    allowed: tuple[str, ...]

    def tables(self, within: str | None, timeout_s: float | None = None) -> list[tuple[str, str]]:
        """The folder of each table of each job, with the name of the table.

        Args:
            within: Of which job, see `layout.job_folder`; None for all.
            timeout_s: What a store may take for it; None for as long as it answers at all.

        Raises:
            NoHistory, StoreUnreachable: They cannot be listed.
            StoreTimedOut: Not in time.
        """

    def begin(self) -> Callable[[], None]:
        """Begin to read; the answer is called at the end of it."""

    def files(self, folders: Sequence[str]) -> list[str]:
        """The files of some tables, as they are now."""

    def sizes(self, folders: Sequence[str]) -> dict[str, int]:
        """The same, and how many bytes each has."""

    def footer(self, file: str) -> pq.FileMetaData:
        """What the footer of a file says.

        Raises:
            TornFile: It cannot be read.
            FileNotFoundError: Another file stands for it now.
            StoreUnreachable: The store cannot be asked.
        """

    def settled(self) -> Settled:
        """Knows which of the files that `sizes` told of are as they will stay."""

    def rows(
        self, connection: duckdb.DuckDBPyConnection, table: str, files: Sequence[str]
    ) -> tuple[str, list[str]]:
        """What stands behind FROM for the rows of some files, and their columns.

        Raises:
            TornFile: One of them cannot be read.
            duckdb.Error: The same, by the words of DuckDB.
        """

    def address(self, file: str) -> str:
        """What others call a file; without a name, what they call the place."""

    def schemas(self, files: Sequence[str]) -> list[pa.Schema]:
        """The columns that are in each of some files.

        Raises:
            TornFile, OSError, ArrowException: One of them cannot be read.
        """

    def check(self, file: str) -> None:
        """Read a file whole.

        Raises:
            OSError, ArrowException: It is damaged.
        """

    def are_there(self, files: Sequence[str]) -> bool:
        """Whether files that were listed are there still."""
