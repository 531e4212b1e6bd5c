"""Which of the names that are there is nearest to one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 16
_LETTERS = 3
"""One slip in so many letters."""


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
    close = [
        name
        for name in difflib.get_close_matches(typed, others, n=_MOST, cutoff=cutoff)
        if _is_slip(typed, name.lower())
    ]
    close.sort(key=others.index)
    return min(close, key=lambda name: (_edits(typed, name.lower()), len(name)), default=None)


def _is_slip(typed: str, name: str) -> bool:
    """Whether one is the other with few letters wrong, or with letters left out.

    Words that only share letters, as `rewards` and `threads` do, are two words.
    """
    is_short = _leaves_out(typed, name) or _leaves_out(name, typed)
    return is_short or _LETTERS * _edits(typed, name) <= max(len(typed), len(name))


def _leaves_out(short: str, name: str) -> bool:
    """Whether the letters of one are in the other, in their order."""
    rest = iter(name)
    return all(letter in rest for letter in short)


def _edits(one: str, other: str) -> int:
    """How many letters have to be put in, taken out, changed, or swapped with the next."""
    earlier: list[int] = []
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, there in enumerate(other, 1):
            changed = before[column - 1] + (letter != there)
            fewest = min(changed, before[column] + 1, now[-1] + 1)
            if one[row - 2 : row] == other[column - 2 : column][::-1] and min(row, column) > 1:
                fewest = min(fewest, earlier[column - 2] + 1)
            now.append(fewest)
        earlier, before = before, now
    return before[-1]
