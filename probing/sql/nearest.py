"""Which of the names that are there is nearest to one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 16


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The name that the fewest edits make of a word; of several the shortest, then the first.

    Args:
        word: What was typed.
        known: The names, the more usual first.
        cutoff: How like the word it has to be, see `difflib`.

    Returns:
        None where none is like it, or it is one of them: then it is not the letters.
    """
    typed, others = word.lower(), list(dict.fromkeys(known))
    if typed in map(str.lower, others):
        return None
    close = difflib.get_close_matches(typed, others, n=_MOST, cutoff=cutoff)
    close.sort(key=others.index)
    return min(close, key=lambda name: (_edits(typed, name.lower()), len(name)), default=None)


def _edits(one: str, other: str) -> int:
    """How many letters have to be put in, taken out or changed."""
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, there in enumerate(other, 1):
            changed = before[column - 1] + (letter != there)
            now.append(min(changed, before[column] + 1, now[-1] + 1))
        before = now
    return before[-1]
