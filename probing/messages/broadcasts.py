"""What an agent tells of a loss that compares each prediction with each target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NOTE = "the loss compares each prediction with each target: {given} is broadcast to {whole}"
_SIZES = re.compile(re.escape(_NOTE).replace(r"\{given\}", "(.*)").replace(r"\{whole\}", "(.*)"))


def broadcast_note(given: Sequence[int], whole: Sequence[int]) -> str:
    """The sentence that says so.

    Args:
        given: The shape of the predictions.
        whole: What it has become together with that of the targets.
    """
    return _NOTE.format(given=list(given), whole=list(whole))


def broadcast_in(notes: Iterable[str]) -> tuple[str, str] | None:
    """Both shapes of the first such sentence, as `[64, 1]`; None where there is none."""
    found = next(filter(None, map(_SIZES.fullmatch, notes)), None)
    return None if found is None else (found[1], found[2])
