"""What a rank of torchrun's writes down of an exception that leaves its `@record`ed function.

Rules of this file: reads a file that others have written, trusts nothing in it, and any bytes at
all give an error or none. It counts only if it is of the user whose run folder names it, and was
written after the agent's start.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from ..linux.foreign_files import read_end
from ..messages.card import Card
from ..rundir.folders import ProcessFolder

_MOST_BYTES = 1 << 20
_MOST_CHARS = 300
_MOST_S = 2**33


class WrittenError(NamedTuple):
    """An exception as torchrun's error file has it.

    Attributes:
        text: Its class and what it says, on one line.
        when_ns: When, in nanoseconds since the epoch, to the second.
    """

    text: str
    when_ns: int

    def sentence(self) -> str:
        """How the process ended by it, without its full stop."""
        return f"it ended with {self.text}, by the error file that torchrun gave it"


def written_error(folder: ProcessFolder, card: Card | None) -> WrittenError | None:
    """The exception that a rank has written down; None where it has not, or was not asked to."""
    written = None if card is None else written_since_start(folder, card, card.error_file)
    return None if written is None else parse(written)


def written_since_start(folder: ProcessFolder, card: Card, path: str | None) -> bytes | None:
    """The end of a file that the owner of a run folder has written to since the agent's start."""
    if not path or not os.path.isabs(path):
        return None
    try:
        owner = os.stat(folder.path).st_uid
        return read_end(path, _MOST_BYTES, owner=owner, since_ns=card.started_ns)
    except OSError:
        return None


def parse(data: bytes) -> WrittenError | None:
    """The members of the file that count."""
    try:
        message = json.loads(data)["message"]
        when_s = int(message["extraInfo"]["timestamp"])
        words = " ".join(str(message["message"]).split())
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not words or not 0 <= when_s <= _MOST_S:
        return None
    cut = words if len(words) <= _MOST_CHARS else words[:_MOST_CHARS].rstrip() + "..."
    return WrittenError(cut, when_s * 10**9)
