"""Shares out the space that all rings of a process may take together.

Rules of this file: decides before a ring is made, never afterwards. A record with fewer rows is
better than none: every table gets some, and what holds fewer than it was to says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ..errors import RingError
from ..tables import TABLES_BY_NAME, Table
from ..units import size
from .format import HEADER_SIZE, MOST_BYTES, layout_of

_LEAST_ROWS = 64
_USUAL_BYTES = 32 << 20
"""What the rings of the default settings take together."""
_SHARE = 10
"""Rings take no more than one part in so many of what was free."""
_OWN = 4
"""Tables of scripts and plugins take no more than one part in so many."""
_MORE_OWN = 8
"""For how many more of them one leaves room, if only for a few rows."""
_LATER = 4
"""One part in so many is left for the rings that are made with their first row."""


class _Space(NamedTuple):
    """What rings may take, and how much less that is than they want.

    Attributes:
        total_bytes: All together; 0: as much as they want.
        halvings: How often the rows of each are halved, because so little is free.
        most: How many rows tables may hold, by name, so that all of them find room.
    """

    total_bytes: int = 0
    halvings: int = 0
    most: Mapping[str, int] = MappingProxyType({})


_space = _Space()


def limit_rings(total_bytes: int, free_bytes: int | None = None) -> str | None:
    """Say what all rings of a run folder may take together, and what is free for all processes.

    Returns:
        One sentence where every ring holds fewer rows than it was to, because so little is free.
    """
    global _space  # noqa: PLW0603 - of the process, as the rings are
    wanted, halvings = min(total_bytes or _USUAL_BYTES, _USUAL_BYTES), 0
    while (
        free_bytes is not None and wanted * _SHARE >> halvings > free_bytes and wanted >> halvings
    ):
        halvings += 1
    _space = _Space(total_bytes, halvings)
    if not halvings or free_bytes is None:
        return None
    return (
        f"every table holds 1/{1 << halvings} of its rows, because only {size(free_bytes)}"
        f" are free there, of which no more than 1/{_SHARE} is taken unless PROBING_RINGS_MIB"
        " says how much"
    )


def free_bytes(path: Path) -> int | None:
    """What is free in a file system for everybody; None where it does not tell."""
    try:
        space = os.statvfs(path)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


def share_space(folder: Path, wanted: Sequence[tuple[Table, int]]) -> None:
    """Have all rings that are about to be made find room: the largest gives half until they do.

    Args:
        folder: Where they are made; what scripts and plugins have there is theirs already.
        wanted: Each table, and the least number of rows that it is to hold.
    """
    global _space  # noqa: PLW0603 - of the process, as the rings are
    if not _space.total_bytes:
        return
    room = _space.total_bytes - _space.total_bytes // _LATER - len(wanted) * HEADER_SIZE
    room -= sum(_own_sizes(folder))
    rows = {table.name: _usual_rows(rows) for table, rows in wanted}
    widths = {table.name: layout_of(table).row_size for table, _ in wanted}
    while sum(rows[name] * widths[name] for name in rows) > room:
        can_give = [name for name in rows if rows[name] > _LEAST_ROWS]
        if not can_give:
            break
        rows[max(can_give, key=lambda name: rows[name] * widths[name])] >>= 1
    _space = _space._replace(most=rows)


def fitting_rows(path: Path, table: Table, rows: int) -> int:
    """How many rows a new ring holds: a power of two, fewer where the rings leave no more room.

    Raises:
        RingError: There is not even room for a few.
    """
    row_size = layout_of(table).row_size
    capacity = _usual_rows(rows)
    capacity = min(capacity, _space.most.get(table.name, capacity))
    left = MOST_BYTES
    if _space.total_bytes:
        others = (ring for ring in path.parent.glob("*.ring") if ring != path)
        left = min(left, _space.total_bytes - sum(ring.stat().st_size for ring in others))
        if table.origin:  # all of that kind may take no more than leaves ours theirs
            own = _space.total_bytes // _OWN - sum(_own_sizes(path.parent, but=path))
            left = min(left - _space.total_bytes // (2 * _LATER), own)
            few = HEADER_SIZE + min(capacity, _LEAST_ROWS) * row_size
            left = max(left - min(left // 2, _MORE_OWN * few), min(left, few))
    while HEADER_SIZE + capacity * row_size > left:
        capacity >>= 1
        if capacity < min(rows, _LEAST_ROWS):
            theirs = f"the {_space.total_bytes >> 20} MiB of PROBING_RINGS_MIB"
            if table.origin:
                theirs = f"what scripts and plugins may have of {theirs}"
            raise RingError(table.name, f"the rings already take {theirs}")
    return capacity


def _own_sizes(folder: Path, *, but: Path | None = None) -> Iterator[int]:
    """The bytes of each ring that is none of ours."""
    for ring in folder.glob("*.ring"):
        if ring.stem not in TABLES_BY_NAME and ring != but:
            yield ring.stat().st_size


def shortfall(table: Table, rows: int, capacity: int) -> str | None:
    """What to say of a ring that is smaller than it was to be because of those beside it."""
    if capacity >= rows >> _space.halvings:
        return None
    return (
        f"{table.full_name} holds {capacity:,} rows instead of {rows:,}, because all of them may"
        f" take {_space.total_bytes >> 20} MiB together (PROBING_RINGS_MIB)"
    )


def _usual_rows(rows: int) -> int:
    """How many rows a ring holds that is to hold so many, where there is room for all."""
    capacity = 1 << max(0, rows - 1).bit_length()
    return max(min(capacity, _LEAST_ROWS), capacity >> _space.halvings)
