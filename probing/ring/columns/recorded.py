"""A recorded table of one process, read by the C part.

Rules of this file: what goes wrong with a record is said here, for both ways of reading it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ...errors import NoPermission, RingError
from ...linux.foreign_files import read_file
from ...linux.kernel_files import read_text
from ...rundir.folders import ProcessFolder
from ...tables import Table
from .. import names
from ..format import is_inline
from ..native import IN_C
from .batch import Batch, batch_of, empty_batch
from .scan import Columns, read_columns


class Recorded:
    """A recorded table of one process, read from its ring file; without one it is empty."""

    def __init__(self, table: Table, folder: ProcessFolder, notes: list[str] | None = None) -> None:
        """Prepare.

        Args:
            notes: Gets sentences about what is damaged.
        """
        self.table = table
        self._folder = folder
        self._notes = notes

    def file_bytes(self) -> int:
        """The size of its ring; 0 where there is none."""
        try:
            return self._folder.ring(self.table.name).stat().st_size
        except OSError:
            return 0

    def load_batch(self, columns: frozenset[str] | None, *, threads: int = 1) -> Batch:
        """Read the ring as it stands, by the C part; only where it was built.

        Args:
            columns: The columns that are needed; the others come as NULL. None for all.
            threads: How many may read a large ring at a time.

        Raises:
            RingError: The ring file is damaged beyond use.
            NoPermission: The operating system refuses.
        """
        path = self._folder.ring(self.table.name)
        with self._our_errors(path):
            try:
                found = read_columns(
                    path,
                    stored_names(self.table, columns),
                    threads=threads,
                    is_still=self._folder.has_ended(),
                )
                texts = names.decode_names(read_or_empty(self._folder))
            except FileNotFoundError:
                self._tell_removed(path)
                return empty_batch(self.table)
        if self._notes is not None:
            lost = _lost(found, texts)
            self._notes.extend(self._damage(found.torn, lost, is_cut=found.is_cut))
        return batch_of(found, texts, columns)

    @contextlib.contextmanager
    def _our_errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise NoPermission(f"{path} cannot be read ({error.strerror})") from error
        except OSError as error:
            raise RingError(path.name, f"it cannot be read ({error.strerror})") from error

    def _tell_removed(self, path: Path) -> None:
        """Say so where the process still writes to a file that has no name any more."""
        is_alive = self._folder.is_alive()
        removed = is_alive and f"{path} (deleted)\n" in read_text(f"/proc/{self._folder.pid}/maps")
        if self._notes is not None and removed:
            self._notes.append(
                f"the file of {self.table.full_name} was removed while the process runs: its"
                " rows cannot be read any more"
            )

    def _damage(self, torn: int, lost: int, *, is_cut: bool) -> Iterator[str]:
        """What is damaged of it, one sentence each; the newest row may be in the making."""
        name = self.table.full_name
        if is_cut:
            yield f"the file of {name} has been cut short: rows are missing"
        elif torn and not self._folder.is_alive():
            yield f"{torn} rows of {name} are damaged, and left out"
        if lost:
            yield f"the list of names is damaged: {lost} texts of {name} are NULL"


def stored_names(table: Table, columns: Collection[str] | None) -> frozenset[str] | None:
    """The stored columns that the needed ones are made of."""
    if columns is None:
        return None
    return frozenset(
        column.part_of or (column.scaled.column if column.scaled else column.name)
        for column in table.columns
        if column.name in columns
    )


def read_or_empty(folder: ProcessFolder) -> bytes:
    """The names file; nothing when there is none."""
    try:
        return read_file(folder.names, names.MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""


def _lost(found: Columns, texts: Sequence[str | None]) -> int:
    """How many texts refer to a name that is damaged or missing."""
    flags = bytes([True, *(text is not None for text in texts[1:])])
    return sum(
        IN_C.lost(raw.data, found.runs, flags)
        for raw in found.raw.values()
        if raw.field.type == "text" and not is_inline(raw.field.code)
    )
