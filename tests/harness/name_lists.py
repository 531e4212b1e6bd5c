"""Names files made by hand."""

from __future__ import annotations

from collections.abc import Iterable

from probing.ring.names import encode_name


def encode_names(names: Iterable[str]) -> bytes:
    """A whole list, from number 1 on."""
    return b"".join(encode_name(name, number) for number, name in enumerate(names, 1))
