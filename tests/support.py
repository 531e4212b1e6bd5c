"""Real processes for the tests: started with a handshake, asked with a deadline, always reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from probing import ring_peek
from probing.rundir import ProcessFolder, RunDirectory

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(__file__).resolve().parent / "programs"
DEADLINE_S = 60.0


def wait_until(fact: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Return the first true value of `fact`, or fail once the deadline has passed."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = fact()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {deadline_s:g} s: {what}")


def clean_env(home: Path, **extra: str) -> dict[str, str]:
    """This environment without any setting of probing, but with a run directory of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PROBING", "XDG_RUNTIME"))}
    env.update(
        PROBING_HOME=str(home),
        PROBING_OVERHEAD="100000",  # nothing is left out of the record of a tiny model
        PROBING_RINGS_MIB="64",  # nor where little of the disk is free
        PYTHONPATH=str(ROOT),
        PYTHONUNBUFFERED="1",
        OMP_NUM_THREADS="1",
        COLUMNS="120",
    )
    env.update(extra)
    return env


class Target:
    """A Python process under test.

    Attributes:
        pid: Its process id.
        env: The environment in which commands find it.
    """

    def __init__(self, argv: list[str], home: Path, cwd: Path, **extra: str) -> None:
        self.home = home
        self.cwd = cwd
        self.env = clean_env(home)
        self.log = cwd / "log.txt"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=clean_env(home, **extra),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.pid = self.process.pid

    @property
    def output(self) -> str:
        """All it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    @property
    def folder(self) -> ProcessFolder:
        """Its run folder."""
        found = self.find_folder()
        assert found is not None, f"no run folder; it printed: {self.output}"
        return found

    def find_folder(self) -> ProcessFolder | None:
        """Its run folder, once it is there with a card."""
        for folder in RunDirectory(self.home).folders():
            if folder.pid == self.pid and folder.read_card() is not None:
                return folder
        return None

    def wait_for_output(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until it has printed a text."""
        wait_until(lambda: self._alive_or_done() and text in self.output, text, deadline_s)

    def wait_for_agent(self) -> None:
        """Wait until its card is in place."""
        wait_until(lambda: self._alive_or_done() and self.find_folder(), "a run folder")

    def wait_for_step(self, step: int) -> None:
        """Wait until that training step has begun."""
        self.wait_for_agent()
        wait_until(lambda: self._alive_or_done() and self.step() >= step, f"step {step}")

    def step(self) -> int:
        """The newest step on record; -1 before the first."""
        row = ring_peek.last_step(self.folder)
        return -1 if row is None else int(row.values["step"] or 0)

    def run(
        self, *args: str, input: str | None = None, timeout_s: float = DEADLINE_S, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a probing command against the same run directory."""
        return subprocess.run(
            [sys.executable, "-m", "probing", *args],
            cwd=self.cwd,
            env={**self.env, **extra},
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def reap(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_S)

    def _alive_or_done(self) -> bool:
        """Fail at once, with what it printed, when it has died of something."""
        code = self.process.poll()
        assert code in (None, 0), f"exit code {code}; it printed: {self.output}"
        return True


def start_program(
    name: str, *args: str, home: Path, cwd: Path, python: str = sys.executable, **extra: str
) -> Target:
    """Start a program of ``tests/programs`` with the agent watching."""
    argv = [python, "-m", "probing._run", str(PROGRAMS / f"{name}.py"), *args]
    return Target(argv, home, cwd, **extra)


def start_training(*args: str, home: Path, cwd: Path, **extra: str) -> Target:
    """Start the bundled training, small, and wait for its third step."""
    small = ["--layers", "2", "--dim", "64", "--context", "32", "--checkpoint-every", "2"]
    script = str(ROOT / "examples" / "train_gpt.py")
    argv = [sys.executable, "-m", "probing._run", script, *small, *args]
    target = Target(argv, home, cwd, **extra)
    target.wait_for_step(3)
    return target
