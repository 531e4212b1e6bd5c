"""Runs rows of the matrix: starts their processes, asks them, and compares.

Rules of this file: a process is asked by the real command, in a process of its own. After every
answer the process must be as it was before. It is always ended, whatever came of it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from probing.linux import process
from tests.harness.targets import DEADLINE_S, ROOT, Target, program_path, wait_until

from .cells import UNDISTURBED, Cell, Question, Row

_RETRY_S = 0.2
_PATIENCE_S = 40.0
_SETTLED_S = 10.0
_TRAINING = ("--layers", "2", "--dim", "64", "--context", "32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one cell.

    Attributes:
        seconds: How long the answer took.
        fault: What did not hold; None where all did.
        printed: The command with all that it printed.
    """

    row: Row
    cell: Cell
    seconds: float
    fault: str | None
    printed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A process that is asked.

    Attributes:
        pid: Its number out here.
    """

    row: Row
    target: Target
    pid: int

    def ask(self, question: Question) -> tuple[subprocess.CompletedProcess[str], float]:
        """The answer to a question, and how long it took."""
        words = [word.format(pid=self.pid) if word == "{pid}" else word for word in question.argv]
        began = time.monotonic()
        if self.row.asker:
            argv = [*self.row.asker, sys.executable, "-m", "probing", *words]
            done = subprocess.run(
                argv,
                cwd=self.target.cwd,
                env=self.target.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
        else:
            done = self.target.run(*words)
        return done, time.monotonic() - began

    def states(self) -> set[str]:
        """The states of its threads; running and sleeping are one, for who is busy does both."""
        return {fact.state.replace("R", "S") for fact in process.threads(self.pid).values()}

    def is_as_before(self) -> bool:
        """Whether its threads are in the states of its row, the one that makes the row included."""
        states, expected = self.states(), self.row.states
        return states <= expected and states >= expected - {"S"}

    def harm(self, *, may_go_on: bool) -> str | None:
        """How it is other than before; None where it is as it was."""
        if not self.row.states:
            return None
        if self.target.process.poll() is not None:
            return f"it has ended with {self.target.process.returncode}"
        if may_go_on or self.row.program == "train_gpt":
            return None
        with contextlib.suppress(AssertionError):  # a new thread is in other states for a moment
            wait_until(self.is_as_before, "its states", _SETTLED_S)
            return self._unexpected_output()
        return f"its threads are in the states {sorted(self.states())}"

    def _unexpected_output(self) -> str | None:
        """What the program would not have printed if it had been left alone."""
        if self.target.output not in ("", UNDISTURBED):
            return f"it printed {self.target.output!r}"
        return None


class Runs:
    """Rows that are run a few at a time, because they wait more than they work."""

    def __init__(
        self, rows: Sequence[Row], folder: Path, *, python: str = sys.executable, jobs: int = 3
    ) -> None:
        """Begin to run them."""
        self._pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self._pending = {
            row.name: self._pool.submit(run_row, row, folder, python=python) for row in rows
        }

    def outcomes(self, row: Row) -> list[Outcome]:
        """What came of a row, once it has been run."""
        return self._pending[row.name].result()

    def close(self) -> None:
        """Run no more rows, and wait for those that run."""
        self._pool.shutdown(cancel_futures=True)


def run_row(row: Row, folder: Path, *, python: str = sys.executable) -> list[Outcome]:
    """Start the processes of a row and ask them everything."""
    outcomes = []
    for with_agent in (False, True):
        cells = [cell for cell in row.cells if cell.question.is_of_agent == with_agent]
        if cells:
            # Short: the code for a queue of calls, with the path of a run folder, has little room.
            cwd = folder / f"{row.name}-{'with' if with_agent else 'no'}"
            with _started(row, cwd, with_agent=with_agent, python=python) as asked:
                outcomes += [_run_cell(asked, cell) for cell in cells]
    return outcomes


def _run_cell(asked: Asked, cell: Cell) -> Outcome:
    """Ask one question until the answer holds.

    The process may be on its way to where it is to be stuck, and a machine that has too much to do
    may keep it from answering in time.
    """
    end = time.monotonic() + (0 if cell.question.may_disturb else _PATIENCE_S)
    while True:
        done, seconds = asked.ask(cell.question)
        fault = _fault(cell, done, asked.pid)
        if fault is None or time.monotonic() >= end:
            break
        time.sleep(_RETRY_S)
    fault = fault or asked.harm(may_go_on=cell.question.may_disturb and not cell.code)
    shown = " ".join(word if " " not in word else f'"{word}"' for word in cell.question.argv)
    return Outcome(
        row=asked.row,
        cell=cell,
        seconds=seconds,
        fault=fault,
        printed=f"$ probing {shown.format(pid=asked.pid)}\n{done.stdout}{done.stderr}"
        f"exit code {done.returncode}",
    )


def _fault(cell: Cell, done: subprocess.CompletedProcess[str], pid: int) -> str | None:
    """What does not hold of an answer."""
    printed = done.stdout + done.stderr
    if done.returncode != cell.code:
        return f"exit code {done.returncode}, not {cell.code}"
    if "Traceback (most" in done.stderr:
        return "a traceback"
    for pattern in cell.says:
        wanted = pattern.replace("{pid}", str(pid))
        if not re.search(wanted, printed, re.MULTILINE):
            return f"does not say {wanted!r}"
    return None


@contextlib.contextmanager
def _started(row: Row, cwd: Path, *, with_agent: bool, python: str) -> Iterator[Asked]:
    """The process of a row, ready to be asked, and ended afterwards."""
    cwd.mkdir(parents=True)
    extra = {"PROBING": "all"} if with_agent else {}
    target = Target(_argv(row, python, with_agent=with_agent), cwd / "h", cwd, **extra)
    try:
        pid = _wait_ready(row, target, with_agent=with_agent)
        yield Asked(row=row, target=target, pid=pid)
    finally:
        target.reap()


def _argv(row: Row, python: str, *, with_agent: bool) -> list[str]:
    """The command that starts the process of a row."""
    if row.program.startswith("/"):
        return [*row.prefix, row.program, *row.arguments]
    if row.program == "train_gpt":
        script, arguments = ROOT / "examples" / "train_gpt.py", (*_TRAINING, *row.arguments)
    else:
        script, arguments = program_path(row.program), row.arguments
    launcher = ("-m", "probing._run") if with_agent else ()
    return [*row.prefix, python, *launcher, str(script), *arguments]


def _wait_ready(row: Row, target: Target, *, with_agent: bool) -> int:
    """Wait until the process is as its row has it; returns its number."""
    if row.exit_code is not None:
        assert target.process.wait(DEADLINE_S) == row.exit_code, target.output
        return target.pid
    if with_agent:
        target.wait_for_agent()
    if row.program == "train_gpt":
        target.wait_for_output("step")
    elif not row.program.startswith("/"):
        target.wait_for_output("ready")
    if row.ends_by is not None:
        assert target.kill(row.ends_by) == -row.ends_by
    if row.prefix[:1] == ("unshare",):
        return wait_until(lambda: _child(target.pid), "a child")
    return target.pid


def _child(pid: int) -> int | None:
    """The number of the only child of a process."""
    numbers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(numbers[0]) if numbers else None
