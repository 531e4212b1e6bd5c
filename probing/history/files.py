"""Files of a history: there whole, or not at all.

Rules of this file: a file is written in a folder of its own that no engine looks into, is on the
disk before it gets its name, and gets that by one rename. What the system refuses is one sentence.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import DamagedHistory, HistoryBusy, HistoryUnwritable
from .books import Books
from .layout import unfinished

BOOKS = b"probing.books"
ROWS_AT_ONCE = 1 << 17
_MOST_BYTES = 64 << 20
_TRIES = 9


class Shelf:
    """Where the files of one process are made."""

    def __init__(self, root: Path, process: str) -> None:
        self._root = root
        self._place = unfinished(root, process)

    def clear(self) -> None:
        """Remove what a killed export has left half done; only for who holds the lock."""
        shutil.rmtree(self._place, ignore_errors=True)

    def put(self, final: Path, rows: pa.Table, books: Books | None = None) -> None:
        """Make a file of rows visible; texts are stored as they are, each once.

        Args:
            books: What is exported once this file is there.

        Raises:
            HistoryUnwritable: It cannot be written whole.
        """
        schema = plain_schema(rows.schema)
        if books is not None:
            schema = schema.with_metadata({BOOKS: json.dumps(books.to_json()).encode()})

        def write(file: IO[bytes]) -> None:
            with writer_of(file, schema) as writer:
                for at in range(0, max(1, rows.num_rows), ROWS_AT_ONCE):
                    piece = rows.slice(at, ROWS_AT_ONCE)
                    writer.write_table(piece.cast(schema.remove_metadata()))

        self._put(final, write)

    def put_json(self, final: Path, value: Any) -> None:
        """Put a value in the place of the one before.

        Raises:
            HistoryUnwritable: It cannot be written whole.
        """
        self.put_bytes(final, json.dumps(value).encode())

    def put_bytes(self, final: Path, data: bytes) -> None:
        """Put a file in the place of the one before.

        Raises:
            HistoryUnwritable: It cannot be written whole.
        """
        self._put(final, lambda file: file.write(data))

    def _put(self, final: Path, write: Callable[[IO[bytes]], object]) -> None:
        """Write a file and give it its name."""
        new = self._place / final.name
        with saying_what_failed(self._root):
            self._place.mkdir(parents=True, exist_ok=True)
            try:
                with new.open("wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                _name(new, final)
            except BaseException:
                with contextlib.suppress(OSError):
                    new.unlink()
                raise
            keep_name(final.parent)


def books_in(path: Path) -> Books:
    """What was exported once that file of rows was there.

    Raises:
        DamagedHistory: The file does not say so.
    """
    try:
        told = pq.read_metadata(path).metadata[BOOKS]
        return Books.from_json(json.loads(told))
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DamagedHistory(str(path), line_of(error)) from None


def run_told(path: Path, process: str) -> str | None:
    """The run in a process's row of a file of `probing.processes`; None where it has no row.

    Raises:
        DamagedHistory: It cannot be read.
    """
    try:
        rows = pq.read_table(path, columns=["run", "process"], partitioning=None)
        row = pc.index(rows["process"], process).as_py()
        return str(rows["run"][row].as_py()) if row >= 0 else None
    except (OSError, pa.ArrowException, KeyError, IndexError) as error:
        raise DamagedHistory(str(path), line_of(error)) from None


def read_json(path: Path) -> Any:
    """The value in a file; None where there is none.

    Raises:
        DamagedHistory: It is not one.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DamagedHistory(str(path), "it is too long")
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DamagedHistory(str(path), line_of(error)) from None


def read_state(path: Path) -> dict[str, Any] | None:
    """What is exported of a process, as it was written down; None where nothing is.

    Raises:
        DamagedHistory: It is not that, or another version's.
    """
    state = read_json(path)
    return None if state is None else checked_state(state, str(path))


def checked_state(state: Any, name: str) -> dict[str, Any]:
    """What is exported of a process, if that is what a value says.

    Args:
        name: The file that it is from.

    Raises:
        DamagedHistory: It says something else.
    """
    try:
        "".join((state["run"], state["project"]))  # they are texts
        for books in state["tables"].values():
            Books.from_json(books)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DamagedHistory(name, "it is not what this version of probing writes") from None
    return dict(state)


@contextlib.contextmanager
def locked(
    root: Path, path: Path, *, waits: bool = False, busy: str | None = None
) -> Iterator[None]:
    """Hold the lock that belongs to a file of our own.

    Args:
        busy: What is going on where another process holds it.

    Raises:
        HistoryBusy: Another process holds it, and it is not waited for.
        HistoryUnwritable: There can be no lock.
    """
    with saying_what_failed(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with saying_what_failed(root):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                raise HistoryBusy(busy or f"{path.stem} is being exported") from None
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def saying_what_failed(root: Path) -> Iterator[None]:
    """Turn what the system says of a folder into a sentence."""
    try:
        yield
    except OSError as error:
        raise HistoryUnwritable(str(root), error.strerror or line_of(error)) from None


def _name(new: Path, final: Path) -> None:
    """Give a file its name; who removes what is old may remove an empty folder meanwhile."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(new, final)
            return
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(new, final)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Columns as they are stored: every engine reads them."""
    return pa.schema(
        [
            field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


def writer_of(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """What writes rows into a file as all files of a history are."""
    return pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)


def keep_name(folder: Path) -> None:
    """Have the disk keep the names in a folder; some file systems need, or know, no such thing."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def line_of(error: BaseException) -> str:
    """What an exception says, in one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
