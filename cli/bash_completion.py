"""Completion in bash, where a colon ends a word: `rank:3` arrives as three.

Rules of this file: imported by a completion alone; being imported, it takes the place of click's.
"""

from __future__ import annotations

from collections.abc import Iterable

from click.shell_completion import BashComplete, CompletionItem, add_completion_class

_COLON = ":"


class ColonComplete(BashComplete):
    """Puts words together that were parted at a colon."""

    _before = 0
    """How many letters of the word stand before what bash takes for it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is completed, and what there is of that."""
        args, incomplete = super().get_completion_args()
        whole = joined([*args, incomplete])
        last = whole[-1]
        if len(whole) <= len(args):
            self._before = last.rfind(_COLON) + 1
        return whole[:-1], last

    def format_completion(self, item: CompletionItem) -> str:
        """As bash puts it in the place of its last word."""
        return f"{item.type},{item.value[self._before :]}"


def joined(words: Iterable[str]) -> list[str]:
    """The words as they were typed, each colon between two of them within one."""
    whole: list[str] = []
    is_open = False
    for word in words:
        is_colon = bool(word) and not word.strip(_COLON)
        if whole and (is_colon or is_open):
            whole[-1] += word
        else:
            whole.append(word)
        is_open = is_colon
    return whole


add_completion_class(ColonComplete, name="bash")
