"""The tokens of a TCP listener.

Rules of this file: loaded only where one is asked for. What is not given is made: 256 random bits.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from ...errors import BadSetting
from ...settings import Settings

_BYTES = 32


class Tokens(NamedTuple):
    """Who may do everything, and who may only read."""

    full: str
    read: str


_NONE = Tokens("", "")


def tokens_for(settings: Settings, before: Tokens = _NONE) -> Tokens:
    """The tokens as given, else those there were before, else new ones.

    Raises:
        BadSetting: Who may only read would be let do everything.
    """
    full = settings.token or before.full or secrets.token_hex(_BYTES)
    read = settings.read_token or before.read or secrets.token_hex(_BYTES)
    if full == read:
        raise BadSetting("PROBING_READ_TOKEN", "it is the same as PROBING_TOKEN")
    return Tokens(full, read)
