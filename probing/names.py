"""The names file: each name once, in the order of its number.

Rules of this file: the format only; the agent appends by it, readers decode by it. A record
is a 32-bit length and that many bytes of UTF-8. The first record is number 1; number 0 is NULL.
A record that is cut short ends the list: its row has not been published yet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LENGTH = struct.Struct("<I")
MAX_NAME_BYTES = 1024
MAX_FILE_BYTES = 16 << 20


def encode_name(name: str) -> bytes:
    """One record; a longer name is cut at `MAX_NAME_BYTES`."""
    text = name.encode("utf-8", "replace")[:MAX_NAME_BYTES]
    return _LENGTH.pack(len(text)) + text


def decode_names(data: bytes) -> list[str | None]:
    """All whole records; item 0 is None, so that a number is an index."""
    return [None, *(name for name, _ in _records(data))]


def is_whole(data: bytes) -> bool:
    """Whether these are records and nothing else, so that more may be put behind them."""
    return max((end for _, end in _records(data)), default=0) == len(data)


def _records(data: bytes) -> Iterator[tuple[str, int]]:
    """Each whole record's name, and where it ends."""
    position = 0
    while position + 4 <= len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        end = position + 4 + length
        if length > MAX_NAME_BYTES or end > len(data):
            return
        yield data[position + 4 : end].decode("utf-8", "replace"), end
        position = end
