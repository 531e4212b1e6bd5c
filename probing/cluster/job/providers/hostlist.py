"""SLURM's lists of hosts: ``node[1-4,07],login``.

Rules of this file: pure; what is written with leading zeros is counted with them.
"""

from __future__ import annotations

import re

from ....errors import BadEndpoint

_MOST_HOSTS = 65_536
_PIECE = re.compile(r"[^\[\],]+|\[[^\[\]]*\]|,")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def expand_hosts(text: str) -> tuple[str, ...]:
    """Every host that a list means, in its order.

    Raises:
        BadEndpoint: It is no such list.
    """
    found: list[str] = []
    words = [""]
    pieces = _PIECE.findall(text)
    if "".join(pieces) != text:
        raise BadEndpoint(text, "a bracket of the list of hosts is not closed")
    for piece in (*pieces, ","):
        if piece == ",":
            found += [word for word in words if word]
            words = [""]
        elif piece.startswith("["):
            numbers = _numbers(piece[1:-1], text)
            if len(words) * len(numbers) + len(found) > _MOST_HOSTS:
                raise BadEndpoint(text, f"these are more than {_MOST_HOSTS:,} hosts")
            words = [word + number for word in words for number in numbers]
        else:
            words = [word + piece for word in words]
    return tuple(found)


def _numbers(ranges: str, text: str) -> list[str]:
    """What stands in brackets, counted out."""
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise BadEndpoint(text, f"[{ranges}] is not made of numbers and ranges")
        low, high = match[1], match[2] or match[1]
        if int(high) - int(low) >= _MOST_HOSTS:
            raise BadEndpoint(text, f"these are more than {_MOST_HOSTS:,} hosts")
        found += [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]
    return found
