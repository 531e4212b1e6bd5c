"""Runs the trainings, asks about each, and prints one table: `python -m tests.trainings.table`.

Each script runs by itself first, then with the agent from its start, and then once more while it is
attached to, looked at and changed. What is said is held against the script's own account.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.trainings.catalog import BY_NAME, TRAININGS, Training
from tests.trainings.cells import COLUMNS, Cell, declined, not_asked, right, wrong
from tests.trainings.live import FOR_EVER, judge_live
from tests.trainings.recorded import judge_record, read_record
from tests.trainings.running import ScriptFailedError, command, running
from tests.trainings.wrong import SAYS

_SETTLED = 8
"""After so many steps it is known what a step is."""
_MARKS = {"right": "yes", "wrong": "**NO**", "declined": "says why not", "not asked": ""}


def judge(training: Training, folder: Path, *, live: bool = True) -> list[Cell]:
    """Judge everything that is said of one training."""
    try:
        cells = judge_run(training, folder)
    except ScriptFailedError as failure:
        return [wrong("runs", str(failure), "it runs")]
    if not live:
        return cells
    try:
        return cells + says_why_not(training, folder, judge_live(training, folder))
    except ScriptFailedError as failure:
        return [*cells, wrong("attach", str(failure), "it runs")]


def judge_run(training: Training, folder: Path, *, tries: int = 3) -> list[Cell]:
    """Run it without the agent and with it, and judge the record of that.

    Args:
        tries: How often it may run until its times are right: on a machine that is loaded, what is
            timed by two at once is not the same to both.
    """
    with running(training, folder / "alone", probing=False) as script:
        alone = [account.checksum for account in script.wait_end()]
    for attempt in range(tries):
        cells = _judge_once(training, folder / f"recorded-{attempt}", alone)
        if "phases" not in {cell.column for cell in cells if cell.outcome == "wrong"}:
            break
    return says_why_not(training, folder, cells)


def says_why_not(training: Training, folder: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Take what is wrong as declined, where the product says itself why it cannot be right."""
    says = SAYS.get(training.name, {})
    if not any(cell.outcome == "wrong" and cell.column in says for cell in cells):
        return list(cells)
    home = Path(tempfile.mkdtemp(prefix="says-", dir=folder))
    with running(training, home, probing=True, steps=FOR_EVER) as script:
        script.wait_steps(_SETTLED)
        said = " ".join(command(str(script.pids[0]), "status").text.split())
    return [
        declined(cell.column)
        if cell.outcome == "wrong" and re.search(says.get(cell.column, "(?!)"), said)
        else cell
        for cell in cells
    ]


def _judge_once(training: Training, folder: Path, alone: list[str | None]) -> list[Cell]:
    with running(training, folder, probing=True) as script:
        try:
            accounts = script.wait_end()
        except ScriptFailedError as failure:
            return [wrong("runs", f"harm: {failure}", "it runs without the agent")]
        record = read_record(script.pids[0])
    sums = [account.checksum for account in accounts]
    same = right("identical")
    if not training.repeatable:
        same = not_asked("identical")
    elif sums != alone:
        same = wrong("identical", f"harm: {sums}", f"{alone}")
    return [right("runs"), same, *judge_record(training, accounts[0], record)]


def judged(names: Sequence[str], *, live: bool) -> Iterator[tuple[Training, list[Cell]]]:
    """Judge the trainings of these names one after the other, in a run directory of their own."""
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    home = tempfile.mkdtemp(prefix="trainings-", dir=room)
    os.environ["PROBING_HOME"] = home
    try:
        for name in names:
            with tempfile.TemporaryDirectory(prefix=f"training-{name}-") as folder:
                yield BY_NAME[name], judge(BY_NAME[name], Path(folder), live=live)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def render(results: Mapping[str, Sequence[Cell]]) -> str:
    """Draw the table, and behind it what was said in each cell that is wrong."""
    lines = ["| training | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, cells in results.items():
        by_column = {cell.column: cell for cell in cells}
        marks = [
            _MARKS[by_column[column].outcome] if column in by_column else "" for column in COLUMNS
        ]
        lines.append(f"| {name} | " + " | ".join(marks) + " |")
    counted = [cell.outcome for cells in results.values() for cell in cells]
    lines.append(f"\n{counted.count('right')} right, {counted.count('wrong')} wrong\n")
    for name, cells in results.items():
        for cell in cells:
            if cell.outcome == "wrong":
                lines.append(f"### {name}: {cell.column}\n\n```text\nsaid: {cell.said}\n")
                lines.append(f"true: {cell.true}\n```\n")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table; end with 1 where a cell is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help="which trainings; all of them unless named")
    parser.add_argument("--no-live", action="store_true", help="leave out attach and commands")
    parser.add_argument("-o", "--output", type=Path, help="write the table there, as it grows")
    options = parser.parse_args()
    results: dict[str, list[Cell]] = {}
    names = options.names or [training.name for training in TRAININGS]
    for training, cells in judged(names, live=not options.no_live):
        results[training.name] = cells
        off = [cell.column for cell in cells if cell.outcome == "wrong"]
        print(f"{training.name}: {'wrong: ' + ', '.join(off) if off else 'right'}", file=sys.stderr)
        if options.output:
            options.output.write_text(render(results), encoding="utf-8")
    print(render(results))
    return int(any(cell.outcome == "wrong" for cells in results.values() for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
