"""Asks processes in every state everything, and prints what came of it as a table.

Without an interpreter, that which runs this is used; others may lack everything that probing
needs: then the processes are theirs, and what an agent would need is not asked of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .cells import COLUMNS, Row
from .fitting import fit
from .rows import ROWS
from .runs import Outcome, Runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("python", nargs="*", default=[sys.executable], help="interpreters")
    parser.add_argument("--row", action="append", help="one row alone; may be given again")
    parser.add_argument("--jobs", type=int, default=3, help="rows at a time")
    options = parser.parse_args(arguments)
    failed = 0
    for python in options.python:
        rows = [fitted for row in ROWS if (fitted := fit(row, python)) is not None]
        if options.row:
            rows = [row for row in rows if row.name in options.row]
        if importlib.util.find_spec("torch") is None:
            rows = [row for row in rows if not row.needs_torch]
        with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
            runs = Runs(rows, Path(folder), python=python, jobs=options.jobs)
            outcomes = [outcome for row in rows for outcome in runs.outcomes(row)]
        print(f"\n{_version(python)}\n\n{render(rows, outcomes)}")
        failed += sum(outcome.fault is not None for outcome in outcomes)
    return 1 if failed else 0


def render(rows: Iterable[Row], outcomes: Sequence[Outcome]) -> str:
    """Two tables, and what was printed where something did not hold."""
    found = {(outcome.row.name, outcome.cell.question): outcome for outcome in outcomes}
    parts = []
    for heading, questions in zip(("not prepared", "with the agent"), COLUMNS, strict=True):
        lines = [[heading, *(question.title for question in questions)]]
        for row in rows:
            by_title = {
                outcome.cell.question.title: outcome
                for (name, question), outcome in found.items()
                if name == row.name and question.is_of_agent == questions[0].is_of_agent
            }
            if by_title:
                cells = [_cell(by_title.get(question.title)) for question in questions]
                lines.append([row.title, *cells])
        if len(lines) > 1:
            parts.append(_table(lines))
    parts += [
        f"FAILED {outcome.row.name}: {outcome.fault}\n{outcome.printed}"
        for outcome in outcomes
        if outcome.fault
    ]
    return "\n\n".join(parts)


def _cell(outcome: Outcome | None) -> str:
    """A cell's text, with the seconds that it took."""
    if outcome is None:
        return ""
    return f"{'FAILED' if outcome.fault else outcome.cell.shows}  {outcome.seconds:.1f} s"


def _table(lines: Sequence[Sequence[str]]) -> str:
    """Columns under each other, with a rule below the heading."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    texts.insert(1, "─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(texts)


def _version(python: str) -> str:
    """What an interpreter calls itself."""
    return subprocess.run(
        [python, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
