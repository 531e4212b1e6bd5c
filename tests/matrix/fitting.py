"""What of the matrix holds for an interpreter other than the one that asks.

Rules of this file: facts of an interpreter are found by asking it. A bare one, which has none of
the packages that probing needs, can be attached to only where those of the asking one fit it.
"""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys

from .cells import ATTACH, LATER_EVAL, LATER_QUERY, Cell, Row

_NEEDED = "import aiohttp, click, duckdb, numpy, pyarrow"


def fit(row: Row, python: str) -> Row | None:
    """The row as it must be with that interpreter; None where nothing of it can be run."""
    if python == sys.executable or _has_packages(python):
        return row
    if row.needs_torch:
        return None
    cells = [cell for cell in row.cells if not cell.question.is_of_agent]
    if _minor(python) != sys.version_info[:2]:
        works = any(cell.question is ATTACH and cell.code == 0 for cell in cells)
        cells = [cell for cell in cells if cell.question not in (LATER_QUERY, LATER_EVAL)]
        if works:
            cells = [_without_packages() if c.question is ATTACH else c for c in cells]
    return dataclasses.replace(row, cells=tuple(cells)) if cells else None


def _without_packages() -> Cell:
    """Attaching to a Python that has no packages, and that those of this one do not fit."""
    return Cell(
        question=ATTACH,
        shows="refused: lacks aiohttp",
        code=3,
        says=("-m pip install probing-agent",),
    )


@functools.cache
def _has_packages(python: str) -> bool:
    """Whether an interpreter has what the agent needs."""
    return subprocess.run([python, "-c", _NEEDED], capture_output=True).returncode == 0


@functools.cache
def _minor(python: str) -> tuple[int, ...]:
    """The minor version of an interpreter."""
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))
