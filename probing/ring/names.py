"""The names file: each name once, in the order of its number.

Rules of this file: the format only; the agent appends by it, readers decode by it. A record is a
32-bit length, a CRC-32 of its number and its text, and so many bytes of UTF-8. The first record is
number 1; number 0 is NULL. A record that is cut short ends the list: its row has not been published
yet. One that is damaged has no name. A text may have a second part, shown in a column of its own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_HEAD = struct.Struct("<II")
_NUMBER = struct.Struct("<Q")
MAX_NAME_BYTES = 1024
_BETWEEN = "\x1f"
"""What stands between the two parts of a text."""
MAX_FILE_BYTES = 16 << 20


def encode_name(name: str, number: int) -> bytes:
    """One record; a longer name is cut at `MAX_NAME_BYTES`."""
    text = name.encode("utf-8", "replace")[:MAX_NAME_BYTES]
    return _HEAD.pack(len(text), _sum_of(text, number)) + text


def decode_names(data: bytes) -> list[str | None]:
    """All whole records; item 0 is None, so that a number is an index, as is what is damaged."""
    return [None, *(name for name, _ in _records(data))]


def joined(first: str, second: str) -> str:
    """A text of two parts; one that says nothing new is left out."""
    return first if first == second else f"{first}{_BETWEEN}{second}"


def first_of(text: str | None) -> str | None:
    """What a text says, without its second part."""
    return None if text is None else text.partition(_BETWEEN)[0]


def second_of(text: str | None) -> str | None:
    """The second part of a text; itself where it has one part only."""
    return None if text is None else text.rpartition(_BETWEEN)[2]


def is_whole(data: bytes) -> bool:
    """Whether these are records and nothing else, so that more may be put behind them."""
    records = list(_records(data))
    end = records[-1][1] if records else 0
    return end == len(data) and all(name is not None for name, _ in records)


def _records(data: bytes) -> Iterator[tuple[str | None, int]]:
    """Each whole record's name, None for a damaged one, and where it ends."""
    position, number = 0, 1
    while position + _HEAD.size <= len(data):
        length, told = _HEAD.unpack_from(data, position)
        end = position + _HEAD.size + length
        if length > MAX_NAME_BYTES or end > len(data):
            return
        text = data[position + _HEAD.size : end]
        is_good = told == _sum_of(text, number)
        yield text.decode("utf-8", "replace") if is_good else None, end
        position, number = end, number + 1


def _sum_of(text: bytes, number: int) -> int:
    """What tells a record from one that is damaged, or that is not in its place."""
    return zlib.crc32(text, zlib.crc32(_NUMBER.pack(number)))
