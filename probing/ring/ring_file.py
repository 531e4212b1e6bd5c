"""An open ring file: its header, and single readings of its slots.

Rules of this file: `pread` only, never a mapping (a file that shrinks would kill the reader). It
trusts no length and no marker. What a whole reading of all rows is made of, `reader` knows.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RingError
from ..linux.foreign_files import open_file
from .format import (
    DONE,
    FAILED,
    HEADER_SIZE,
    MARKER,
    MOST_BYTES,
    RingHeader,
    decode_header,
    is_inline,
)
from .native import IN_C

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ATTEMPTS = 3
"""How often a row is read until two readings agree."""
MOST_CONTRADICTED = 64
"""How many numbers that the rows before them contradict are asked about one by one."""
_NEWER = 4
"""How many rows behind one are asked whether they are newer: some may be in the making."""
_NEAR = 64
"""How many rows before the newest are asked whether it can be: some may not be written yet."""

_NUMPY_CODES = {"q": "<i8", "d": "<f8", "I": "<u4", "B": "u1"}
_CODES_OF_TYPE = {
    "int64": "qIB", "time": "q", "float64": "d", "text": "I", "bool": "B", "enum": "B"
}  # fmt: skip


class RingFile:
    """An open ring file: its header, and readings of its slots."""

    def __init__(self, path: Path) -> None:
        self._source = path.name
        self._fd = open_file(path)
        try:
            self.header = decode_header(self._pread(HEADER_SIZE, 0), source=self._source)
            check_rows(self.header, self._source)
            size = self._size()
        except BaseException:
            os.close(self._fd)
            raise
        self.slots = min(self.header.capacity, (size - HEADER_SIZE) // self.header.row_size)

    def __enter__(self) -> RingFile:  # noqa: PYI034 - `Self` is newer than Python 3.10
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)

    def _size(self) -> int:
        size = os.fstat(self._fd).st_size
        if size > MOST_BYTES:
            raise RingError(self._source, f"it has more than {MOST_BYTES:,} bytes")
        return size

    def _pread(self, length: int, offset: int) -> bytes:
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            raise RingError(self._source, f"it cannot be read ({error.strerror})") from error

    def fill(self, buffer: npt.NDArray[np.uint8], slot: int) -> int:
        """Read slots into a buffer, from `slot` on; returns how many bytes there were."""
        view = buffer.data
        offset, done = HEADER_SIZE + slot * self.header.row_size, 0
        while done < len(view):
            try:
                got = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as error:
                raise RingError(self._source, f"it cannot be read ({error.strerror})") from error
            if got == 0:
                break
            done += got
        return done

    def pieces(self, newest: int) -> list[tuple[int, int]]:
        """The runs of slots, each from its first to before its last, from the oldest row on."""
        capacity = self.header.capacity
        start = (newest + 1) % capacity if newest >= capacity else 0
        pieces = [(start, self.slots), (0, min(start, self.slots))]
        return [(first, stop) for first, stop in pieces if first < stop]

    @functools.cached_property
    def dtype(self) -> np.dtype[Any]:
        """The layout of a row for numpy."""
        return _dtype_of(self.header)

    def read_slots(
        self,
        hint: int,
        run: tuple[int, int, int],
        step: int,
        threads: int,
        *buffers: Any,
        is_still: bool = False,
    ) -> None:
        """Read slots by the C part, see there; only where it was built.

        Args:
            run: The place of the first one, its slot, and how many they are.
            is_still: Whether nobody writes to it any more: then each is read once.
        """
        ring = self._fd, self.header.row_size, self.header.capacity
        try:
            IN_C.read_slots(*ring, hint, *run, step, threads, is_still, *buffers)
        except OSError as error:
            raise RingError(self._source, f"it cannot be read ({error.strerror})") from error

    def read_row(self, slot: int) -> bytes | None:
        """The bytes of a slot that holds a whole row; None when it holds none."""
        size = self.header.row_size
        for _ in range(ATTEMPTS):
            offset = HEADER_SIZE + slot * size
            row = self._pread(size, offset)
            if len(row) == size and row == self._pread(size, offset):
                begin, end = _markers(row)
                number = begin >> 2
                whole = not begin & 3 and end - begin in (0, DONE, FAILED)
                if whole and number and number % self.header.capacity == slot:
                    return row
        return None

    def newest(self) -> int:
        """About the newest number, by halving; 0 when there is none or damage hides it.

        It is only where to start reading: nothing breaks when it is wrong.
        """
        if self.slots < 1:
            return 0
        generation = self._number(0) // self.header.capacity
        low, high = 0, self.slots - 1
        while low < high:
            middle = (low + high + 1) // 2
            number = self._number(middle)
            if number and number // self.header.capacity >= generation:
                low = middle
            else:
                high = middle - 1
        return self._number(low)

    def can_hold(self, newest: int) -> bool:
        """Whether the rows before it do not all say that a number is nonsense.

        Damage can give both markers of a row the same number, and one that is far too large would
        make all the others look as if they had been overwritten.
        """
        is_contradicted = False
        for number in range(newest - 1, newest - 2 - min(_NEAR, self.slots // 4), -1):
            slot = number % self.header.capacity
            held = self._number(slot) if slot < self.slots else 0
            if held >= number:
                return True
            is_contradicted |= held > 0
        return not is_contradicted

    def begun(
        self, newest: int, pieces: Sequence[tuple[int, int]], is_found: Callable[[int], bool]
    ) -> int:
        """The newest number that was given, at least; never less than an earlier reading said.

        The writer may be completing the newest row as it is read, or may have come round to it and
        be writing over it. Then it is torn, though it was whole before. Its begin marker tells
        that it has been there, or, where that is gone, the rows behind it, which are newer by now.

        Args:
            newest: The newest number that was found.
            is_found: Whether a whole row was read at a place in the order of reading.
        """
        if newest < self.header.capacity:
            return newest
        (start, stop), *_ = pieces
        for number in range(newest + 1, newest + 1 + _NEWER):
            slot = number % self.header.capacity
            place = slot - start if slot >= start else stop - start + slot
            if slot >= stop or is_found(place) or not self._has_begun(number):
                return number - 1
        return newest + _NEWER

    def _has_begun(self, number: int) -> bool:
        """Whether a number has been given, by its slot and the rows behind it as they are now."""
        slot = number % self.header.capacity
        begin = self._pread(MARKER.size, HEADER_SIZE + slot * self.header.row_size)
        held = MARKER.unpack(begin)[0] if len(begin) == MARKER.size else 0
        if not held & 3 and held >> 2 >= number and (held >> 2) % self.header.capacity == slot:
            return True
        return any(
            self._number(later % self.header.capacity) >= later
            for later in range(number + 1, number + 1 + min(_NEWER, self.slots // 4))
            if later % self.header.capacity < self.slots
        )

    def _number(self, slot: int) -> int:
        row = self.read_row(slot)
        return _markers(row)[0] >> 2 if row else 0


def fullest(numbers: Iterable[int], capacity: int) -> int:
    """The number up to which a ring's worth of numbers has the most rows; 0 where there are none.

    For a ring in which so many numbers are nonsense that somebody must have written them.
    """
    ordered = sorted([number for number in numbers if number])
    newest = oldest = most = 0
    for place, number in enumerate(ordered, 1):
        while ordered[oldest] <= number - capacity:
            oldest += 1
        if place - oldest >= most:
            newest, most = number, place - oldest
    return newest


def check_rows(header: RingHeader, source: str) -> None:
    """Make sure that there can be rows as a header describes them.

    Raises:
        RingError: There cannot.
    """
    names = {"begin", "end", *(field.name for field in header.fields)}
    known = all(_is_known(field.type, field.code) for field in header.fields)
    if header.row_size % 8 or not known or len(names) < len(header.fields) + 2:
        raise RingError(source, "its header describes rows that cannot be")


def _dtype_of(header: RingHeader) -> np.dtype[Any]:
    import numpy as np

    return np.dtype(
        {
            "names": ["begin", *(f.name for f in header.fields), "end"],
            "formats": ["<u8", *(_numpy_code(f.code) for f in header.fields), "<u8"],
            "offsets": [0, *(f.offset for f in header.fields), header.row_size - 8],
            "itemsize": header.row_size,
        }
    )


def _is_known(type: str, code: str) -> bool:
    """Whether columns of a type are stored by a code."""
    return type == "text" if is_inline(code) else code in _CODES_OF_TYPE[type]


def _numpy_code(code: str) -> str:
    """What numpy calls a code."""
    return f"S{code[:-1]}" if is_inline(code) else _NUMPY_CODES[code]


def _markers(row: bytes) -> tuple[int, int]:
    """The begin and the end marker."""
    return MARKER.unpack_from(row, 0)[0], MARKER.unpack_from(row, len(row) - 8)[0]
