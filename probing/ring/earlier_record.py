"""What an earlier agent of this very process has left, for the one that goes on with its record.

An agent that was stopped, or that went and left its record, has had the process's run folder; so
has the program that a process ran before it executed another one. A process has one record: who
comes next numbers its rows and names behind those that are there.

Rules of this file: reads, and trusts nothing; what is not exactly as it would be written now is
None, and is begun anew. Loaded only where there is such a file.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import RingError
from ..linux.foreign_files import open_file, read_file
from .format import (
    DROPPED,
    HEADER_SIZE,
    MARKER,
    RingLayout,
    decode_header,
    dropped_offset,
    encode_header,
)
from .names import decode_names, is_whole


def read_names(path: Path, *, most_bytes: int) -> tuple[dict[str, int], int, int] | None:
    """Each name's number, how many there are, and how many bytes; None: it cannot go on."""
    try:
        data = read_file(path, most_bytes)
    except OSError:
        return None
    if not is_whole(data):
        return None
    names = decode_names(data)
    numbers = {name: number for number, name in enumerate(names) if name is not None}
    return numbers, len(names) - 1, len(data)


def read_ring(path: Path, layout: RingLayout, *, least: int) -> tuple[int, int] | None:
    """How many rows a ring holds, and the number of the newest; None: it cannot go on.

    Args:
        least: How many it has to hold.
    """
    try:
        fd = open_file(path)
    except OSError:
        return None
    try:
        capacity = _capacity(fd, layout)
        if capacity is None or capacity < least:
            return None
        newest = _newest(fd, layout.row_size, capacity)
    finally:
        os.close(fd)
    return None if newest is None else (capacity, newest)


def _capacity(fd: int, layout: RingLayout) -> int | None:
    """How many rows it holds, if its header and its size are those of a ring of this layout."""
    header = os.pread(fd, HEADER_SIZE, 0)
    try:
        is_now = decode_header(header, source=layout.table.name)
    except RingError:
        return None
    capacity = is_now.capacity
    as_made = encode_header(layout, capacity=capacity, clock_offset_ns=is_now.clock_offset_ns)
    counted, behind = dropped_offset(), dropped_offset() + DROPPED.size
    is_same = (header[:counted], header[behind:]) == (as_made[:counted], as_made[behind:])
    is_usable = os.fstat(fd).st_size == HEADER_SIZE + capacity * layout.row_size
    is_power = capacity & (capacity - 1) == 0
    return capacity if is_same and is_usable and is_power else None


def _newest(fd: int, row_size: int, capacity: int) -> int | None:
    """The newest row's number, 0 where there is none; None where the rows are not in their places.

    Rows of the lap in progress lie from the slot of number 1 on; where they end is searched for.
    """

    def number_at(place: int) -> int:
        at = HEADER_SIZE + (place & (capacity - 1)) * row_size
        number: int = MARKER.unpack(os.pread(fd, MARKER.size, at))[0] >> 2
        return number

    first = number_at(1)
    if not first:
        return 0
    if first % capacity != 1 % capacity:
        return None
    low, high = 1, capacity
    while low < high:
        middle = (low + high + 1) // 2
        if number_at(middle) == first + middle - 1:
            low = middle
        else:
            high = middle - 1
    return first + low - 1
