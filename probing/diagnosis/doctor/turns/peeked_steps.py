"""The newest steps of a process of this machine by the file of its record, without the SQL engine.

Rules of this file: a few milliseconds and no library, for where no statement has come back in time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....errors import RingError
from ....linux.foreign_files import read_file
from ....ring import names
from ....ring.format import FAILED, OPEN
from ....ring.peek import RingPeek, Row

if TYPE_CHECKING:
    from ....rundir.folders import ProcessFolder

_OPENING = frozenset({"step", "start_ns", "thread_id"})
_TEXTS = frozenset({"optimizer"})


def newest_steps(
    folder: ProcessFolder, columns: Sequence[str], most: int, until_ns: int
) -> list[dict[str, Any]]:
    """Rows of python.steps as SQL gives them, oldest first; none where they cannot be read.

    Args:
        columns: Of python.steps.
        most: How many rows.
        until_ns: Steps that began then, or later, are left out.
    """
    texts: Sequence[str | None] = ()
    with contextlib.suppress(OSError):
        texts = names.decode_names(read_file(folder.names, names.MAX_FILE_BYTES))
    try:
        with RingPeek(folder.ring("steps")) as ring:
            rows = [_as_sql_gives(row, columns, texts) for row in ring.newest(most)]
    except (OSError, RingError):
        return []
    return [row for row in rows[::-1] if row["start_ns"] < until_ns]


def _as_sql_gives(row: Row, columns: Sequence[str], texts: Sequence[str | None]) -> dict[str, Any]:
    """A row with these columns; of a step in progress no more is known than how it began."""
    known, values = row.values, dict[str, Any]()
    for name in columns:
        value = known.get(name)
        if name in _TEXTS:
            value = names.first_of(texts[value]) if value and value < len(texts) else None
        values[name] = value if row.state != OPEN or name in _OPENING else None
    took_ns = None if row.state == OPEN else known["duration_ns"]
    values["duration"] = None if took_ns is None else took_ns * 1e-9
    values["failed"] = row.state == FAILED
    return values
