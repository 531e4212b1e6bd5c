"""A job of Open MPI's real `mpirun`, asked as docs/how-to/clusters.md has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster_page import STEPS_OF_RANKS, section
from tests.harness.targets import DEADLINE_S, clean_env, program_path, wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="openmpi-bin is not here"),
]


class Job:
    """Two ranks, and who asks them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._env = clean_env(folder / "home")
        argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "-x", "PROBING=1"]
        with (folder / "log").open("wb") as log:
            self.launcher = subprocess.Popen(
                [*argv, sys.executable, program_path("on_mpi")],
                cwd=folder,
                env=self._env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What a command says."""
        argv = [sys.executable, "-m", "probing", *words]
        return subprocess.run(
            argv, env=self._env, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
        )

    def end(self) -> int:
        """Have it end by itself; its exit code."""
        (self._folder / "stop").touch()
        try:
            return self.launcher.wait(DEADLINE_S)
        finally:
            self.launcher.terminate()  # which ends its ranks
            self.launcher.wait(DEADLINE_S)

    def output(self) -> str:
        """All that it has printed."""
        return (self._folder / "log").read_text("utf-8", "replace")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """It, with some steps of both ranks on record."""
    made = Job(tmp_path)

    def has_steps() -> bool:
        assert made.launcher.poll() is None, made.output()
        done = made.ask("-t", "all", "query", STEPS_OF_RANKS, "--json")
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        return sorted(row["rank"] for row in rows if row["steps"] > 3) == [0, 1]

    try:
        wait_until(has_steps, "steps of both ranks", 2 * DEADLINE_S)
        yield made
    finally:
        made.end()


def test_its_ranks_are_told_apart(job: Job) -> None:
    """By the variables of mpirun alone: one job of two ranks, which the doctor looks at."""
    assert "mpirun -n 2 -x PROBING=1 python train.py" in section("Open MPI")
    assert "2 of 2 ranks seen" in job.ask("-t", "all", "list", "--job").stdout
    done = job.ask("-t", "all", "doctor", "--format", "json", "--timeout", "60")
    assert done.returncode == 0, done
    assert "ranks 0-1" in json.loads(done.stdout)["about"]
    assert job.end() == 0, job.output()
