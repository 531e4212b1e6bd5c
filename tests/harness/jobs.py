"""Real jobs of several ranks for the tests: each rank ready, always reaped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.stacks.work_done import children_of
from tests.harness import warm
from tests.harness.targets import DEADLINE_S, clean_env, program_path, run_command, wait_until

READY = "ready"
LAUNCHER = Path(__file__).resolve().parent / "launcher.py"


class Job:
    """A program of ``tests/programs`` that runs on several ranks of this machine, with gloo.

    Attributes:
        home: Its run directory.
        process: The launcher.
    """

    def __init__(self, program: str, *args: str, ranks: int, cwd: Path, **extra: str) -> None:
        self.home = cwd / "home"
        self.cwd = cwd
        self.ranks = ranks
        self.env = clean_env(self.home)
        self._logs = cwd / "logs"
        self._log = cwd / "launcher.txt"
        argv = [sys.executable, str(LAUNCHER), str(ranks), str(self._logs), "-m", "probing._run"]
        env = clean_env(self.home, **{"PROBING": "1", **extra})
        with self._log.open("wb") as log:
            self.process = warm.start(
                [*argv, str(program_path(program)), *args],
                cwd=cwd,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def output(self, rank: int) -> str:
        """All that a rank has printed so far."""
        try:
            return (self._logs / f"{rank}.txt").read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def wait_for_output(self, text: str, deadline_s: float = 2 * DEADLINE_S) -> None:
        """Wait until every rank has printed a text."""
        for rank in range(self.ranks):
            self.wait_for_rank(rank, text, deadline_s)

    def wait_for_rank(self, rank: int, text: str, deadline_s: float = 2 * DEADLINE_S) -> None:
        """Wait until one rank has printed a text."""

        def has_printed() -> bool:
            if text in self.output(rank):
                return True
            assert self.process.poll() in (None, 0), self.everything()
            return False

        wait_until(has_printed, f"{text!r} of rank {rank}", deadline_s)

    def everything(self) -> str:
        """What the launcher and all ranks have printed, for the message of a failed test."""
        ranks = [f"rank {rank}: {self.output(rank)}" for rank in range(self.ranks)]
        return "\n".join([self._log.read_text("utf-8", "replace"), *ranks])

    def folder(self, rank: int) -> ProcessFolder:
        """The run folder of a rank."""
        found = self._find(rank)
        assert found is not None, f"no run folder of rank {rank}: {self.everything()}"
        return found

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return self.folder(rank).pid

    def started_ranks(self) -> list[int]:
        """The processes of its ranks, also of those that have no agent."""
        pids = descendants(self.process.pid)
        return sorted(pid for pid in pids if b"\0LOCAL_RANK=" in _environ(pid))

    def wait(self) -> None:
        """Wait until the whole job has ended well."""
        code = self.process.wait(4 * DEADLINE_S)
        assert code == 0, self.everything()

    def ask(self, rank: int, sql: str) -> list[dict[str, Any]]:
        """Rows of the record of one rank."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROBING_HOME", str(self.home))
            return probing.connect(str(self.folder(rank).path)).query(sql).to_pylist()

    def run(self, *args: str, timeout_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
        """Run a probing command against the job's run directory."""
        return run_command(*args, cwd=self.cwd, env=self.env, timeout_s=timeout_s)

    def reap(self) -> None:
        """End the launcher and all ranks, whatever state they are in."""
        pids = descendants(self.process.pid)
        pids |= {folder.pid for folder in RunDirectory(self.home).folders() if folder.is_alive()}
        if self.process.poll() is None:
            self.process.kill()
        for pid in pids:
            _kill(pid)
        self.process.wait(DEADLINE_S)

    def _find(self, rank: int) -> ProcessFolder | None:
        for folder in RunDirectory(self.home).folders():
            card = folder.read_card()
            if card is not None and card.rank == rank:
                return folder
        return None


def start_job(program: str, *args: str, ranks: int, cwd: Path, **extra: str) -> Job:
    """Start a job and wait until each rank has printed that it is ready."""
    job = Job(program, *args, ranks=ranks, cwd=cwd, **extra)
    try:
        job.wait_for_output(READY)
    except BaseException:
        job.reap()
        raise
    return job


StartJob = Callable[..., Job]


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that they have."""
    children = set(children_of(pid))
    return children.union(*map(descendants, children))


def _environ(pid: int) -> bytes:
    """The environment that a process was started with."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
