"""What a file that was made of many says of those: how far each process had been exported.

Rules of this file: the words, and where they stand; who makes such files is in `compaction`.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import DamagedHistory
from ..messages.frozen import dataclass
from .books import Books
from .files import BOOKS, books_in, line_of, run_told
from .layout import (
    Partition,
    day_pattern,
    is_merged,
    look_name,
    look_of,
    part_name,
    part_of,
    quoted,
    unquoted,
    values_in,
)
from .tables import PROCESSES

MERGED = b"probing.merged"


@dataclass(frozen=True, slots=True)
class Said:
    """What files say beside their rows.

    Attributes:
        parts: Of each process whose rows they hold the books after the newest of its files.
        looks: When each process was last exported, since the epoch, where they hold what it is.
    """

    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)

    def add(self, other: Said) -> None:
        """Take in what another file says."""
        for process, books in other.parts.items():
            known = self.parts.get(process)
            if known is None or known["number"] < books["number"]:
                self.parts[process] = books
        for process, at_ns in other.looks.items():
            self.looks[process] = max(at_ns, self.looks.get(process, at_ns))

    def to_bytes(self) -> bytes:
        """As it stands in a file: text, which engines may show."""
        text = json.dumps({"parts": self.parts, "looks": self.looks})
        return base64.b64encode(zlib.compress(text.encode()))


def said_by(path: Path) -> Said:
    """What a file says beside its rows.

    Raises:
        DamagedHistory: It cannot be read.
    """
    try:
        metadata = pq.read_metadata(path).metadata or {}
        part, look = part_of(path.name), look_of(path.name)
        if is_merged(path.name):
            return Said(**json.loads(zlib.decompress(base64.b64decode(metadata[MERGED]))))
        if part is not None:
            return Said(parts={part[0]: json.loads(metadata[BOOKS])})
        return Said(looks={look: path.stat().st_mtime_ns} if look else {})
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError, zlib.error) as error:
        raise DamagedHistory(str(path), line_of(error)) from None


def newest_books(partition: Partition, process: str) -> Books:
    """How far a process is exported, by all files that are there; for where its state is lost.

    Raises:
        DamagedHistory: A file that may say so cannot be read.
    """
    found = Said()
    for path in _saying(partition.days(), process):
        found.add(said_by(path))
    books = found.parts.get(process)
    return Books() if books is None else Books.from_json(books)


def with_later_files(books: Books, partition: Partition, process: str) -> Books:
    """The books after the newest file of rows, which a killed export may have left behind them."""
    days = partition.days()
    while True:
        name = part_name(process, books.number + 1)
        path = next((day / name for day in days if (day / name).exists()), None)
        if path is None:
            return books
        books = books_in(path)


def told_before(root: Path, process: str, within: str) -> dict[str, Any] | None:
    """Of which run a history tells that a process is, and where; None where it does not.

    Args:
        within: The folders to look in, see `day_pattern`.

    Raises:
        DamagedHistory: A file that may say so cannot be read.
    """
    own = root.glob(f"{within}/{look_name(process)}")
    for path in chain(own, root.glob(f"{within}/merged-*.parquet")):
        if (run := run_told(path, process)) is not None:
            return {"run": run, **_place_of(path)}
    return None


def place_of_look(root: Path, project: str, process: str) -> dict[str, str | None] | None:
    """Where the one file is that says what a process is; None where there is none."""
    within = day_pattern(PROCESSES.name, project=quoted(project))
    return next(map(_place_of, root.glob(f"{within}/{look_name(process)}")), None)


def _place_of(path: Path) -> dict[str, str | None]:
    said = values_in(str(path))
    return {name: unquoted(said[name]) for name in ("project", "job", "day")}


def is_look_merged(folder: Path, process: str) -> bool:
    """Whether what a process is stands in a file that was made of many, or may: one is damaged."""
    merged = filter(is_merged, (path.name for path in folder.glob("merged-*.parquet")))
    try:
        return any(process in said_by(folder / name).looks for name in merged)
    except DamagedHistory:
        return True


def _saying(days: Iterable[Path], process: str) -> Iterator[Path]:
    """The newest file of rows of a process, and those that were made of many."""
    numbers = []
    for day in days:
        yield from (path for path in day.glob("merged-*.parquet") if is_merged(path.name))
        for path in day.glob(f"{process}.*.parquet"):
            part = part_of(path.name)
            if part is not None and part[0] == process:
                numbers.append((part[1], path))
    if numbers:
        yield max(numbers)[1]
