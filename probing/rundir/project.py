"""What runs belong to together."""

from __future__ import annotations

from pathlib import Path

from ..messages.card import Card

_OPTIONS_WITH_VALUE = frozenset({"-W", "-X"})


def project_of(card: Card) -> str:
    """What a run belongs to where nobody says: its script, or its module."""
    words = list(card.command[1:])
    while words:
        word = words.pop(0)
        if word in _OPTIONS_WITH_VALUE:
            words[:1] = []
        elif word == "-m" and words:
            return words[0]
        elif word == "-c":
            return "-c"
        elif not word.startswith("-"):
            return Path(word).stem or word
    return Path(card.executable).name or "python"
