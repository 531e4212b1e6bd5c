"""What runs belong to together."""

from __future__ import annotations

from pathlib import Path

from ..arguments import what_python_runs
from ..messages.card import Card


def project_of(card: Card) -> str:
    """What a run belongs to where nobody says: its script, or its module."""
    first, *rest = what_python_runs(card.command[1:]) or [""]
    if first == "-m" and rest:
        return rest[0]
    return Path(first).stem or first or Path(card.executable).name or "python"
