"""What it takes a script to add a row to a table of its own, with an agent and without."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .measures import Measure, measure_in_turn, rounds_for
from .processes import temporary_home, user_env

_PROGRAM = Path(__file__).parent / "programs" / "adding_rows.py"
_ROWS = 100_000


def measure(effort: float) -> Iterator[Measure]:
    """An int, a float and a short text, in a loop."""
    rows = max(100, min(_ROWS, int(_ROWS * effort)))
    with temporary_home() as home:

        def adding(way: str) -> Callable[[], float]:
            argv = [sys.executable, str(_PROGRAM), str(rows), way]
            return lambda: float(
                subprocess.check_output(argv, text=True, env=user_env(home), cwd=str(home))
            )

        recorded, bare = measure_in_turn(rounds_for(9, effort), adding("recorded"), adding("none"))
    what = "a row of a script's own, processor time"
    yield Measure(what=f"{what}, recorded", unit="us", values=recorded, must=5.0)
    yield Measure(what=f"{what}, without an agent", unit="us", values=bare, must=0.5)
