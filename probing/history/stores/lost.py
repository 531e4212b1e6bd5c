"""The books of a process whose store is not as this machine has left it: emptied, or put back.

What was copied there and is there no more waits again, as far as the rings have it still; what
waits in the spool stays as it is. Rules of this file: arithmetic on the numbers of rows, as in
`history.books`, and the books balance as there; done twice it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import RingError
from ...ring.peek import RingPeek
from ...rundir.folders import ProcessFolder
from ..books import Books, Numbers

Tables = Mapping[str, Any]
"""Books by the names of their tables, as they are written down."""


def tables_again(
    folder: ProcessFolder, now: Tables, left: Tables, there: Tables, waiting: Mapping[str, int]
) -> dict[str, Any]:
    """The books from which an export goes on.

    Args:
        now: Those of this machine.
        left: What they were when they were last copied to the store.
        there: What the store has instead.
        waiting: How many rows of each table are in files of the spool.
    """
    empty = Books().to_json()
    found = {}
    for name, told in now.items():
        was, has = (Books.from_json(tables.get(name, empty)) for tables in (left, there))
        books = _again(Books.from_json(told), was, has, waiting.get(name, 0), _rows(folder, name))
        found[name] = books.to_json()
    return found


def rows_lost(left: Tables, there: Tables) -> int:
    """How many rows a store has lost."""
    counts = [sum(int(books["rows"]) for books in tables.values()) for tables in (left, there)]
    return max(0, counts[0] - counts[1])


def _again(now: Books, left: Books, there: Books, waiting: int, ring: range) -> Books:
    """The books of a table: what the store has counts, and what waits here."""
    is_same_ring = left.upto <= now.upto and left.mark[0] <= now.mark[0]
    has = _exported(there, ring)
    lost = np.setdiff1d(_exported(left, ring), has, assume_unique=True)
    ahead = there.waiting[there.waiting > now.upto]  # where another spool has gone on meanwhile
    numbers = np.union1d(now.waiting, lost if is_same_ring else lost[:0])
    numbers = np.union1d(np.setdiff1d(numbers, has, assume_unique=True), ahead)
    rows, upto = there.rows + waiting, max(now.upto, there.upto)
    written = now.rows + now.overwritten + now.damaged + len(now.waiting) + upto - now.upto
    return Books(
        number=max(now.number, there.number),
        upto=upto,
        rows=rows,
        overwritten=max(0, written - rows - len(numbers)),
        mark=max(now.mark, there.mark),
        waiting=numbers,
    )


def _exported(books: Books, ring: range) -> Numbers:
    """The rows in a ring that were exported, or could not be read."""
    numbers = np.arange(ring.start, min(books.upto + 1, ring.stop), dtype=np.int64)
    return np.setdiff1d(numbers, books.waiting, assume_unique=True)


def _rows(folder: ProcessFolder, name: str) -> range:
    """The numbers of the rows that the ring of a table has still."""
    try:
        with RingPeek(folder.ring(name)) as ring:
            newest = ring.newest_seq()
            return range(max(0, newest - ring.header.capacity) + 1, newest + 1)
    except (OSError, RingError):
        return range(1, 1)
