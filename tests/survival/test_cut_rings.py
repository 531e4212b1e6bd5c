"""Rings that somebody cuts short while a training writes to them: it goes on, and says so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.ring.native import IN_C
from probing.rundir.folders import RunDirectory
from tests import faults
from tests.harness.targets import DEADLINE_S, Target, clean_env, start_training, wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(IN_C is None, reason="without the C part nothing keeps a cut ring whole"),
]


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Target]:
    """The bundled training, with an eval on record."""
    target = start_training(home=tmp_path / "home", cwd=tmp_path)
    try:
        assert target.run(str(target.pid), "eval", "1").returncode == 0
        yield target
    finally:
        target.reap()


def cut(target: Target, left: int) -> list[Path]:
    """Leave so many bytes of all its rings, as who may do anything with his files."""
    rings = sorted(target.folder.path.glob("*.ring"))
    for ring in rings:
        ring.chmod(0o600)
        os.truncate(ring, left)
        ring.chmod(0o400)
    return rings


def told(target: Target) -> str:
    """What `status` says."""
    done = target.run(str(target.pid), "status")
    return done.stdout + done.stderr


@pytest.mark.fault("R6")
@pytest.mark.parametrize("left", [0, 100])
def test_the_training_outlives_it_and_its_record_goes_on(
    left: int, training: Target, fault: faults.Reached
) -> None:
    """The rings are whole again, `status` says so, and new rows are read, also after the end."""
    steps = training.folder.ring("steps")
    size = steps.stat().st_size
    cut(training, left)
    wait_until(lambda: training._alive_or_done() and steps.stat().st_size == size, "a whole ring")
    before = training.step()
    training.wait_for_step(before + 3)
    assert training.run(str(training.pid), "eval", "2").returncode == 0
    fault.equals(f"rings of which {left} bytes stay: exit code", None, training.process.poll())
    assert "python.steps: somebody cut the file short, once" in told(training)
    assert steps.stat().st_mode & 0o777 == 0o400
    training.kill()
    sql = f"SELECT count(*) AS n FROM python.steps WHERE step > {before}"
    answer = training.run(str(training.pid), "query", "--format=jsonl", sql, "--format", "csv")
    assert int(answer.stdout.splitlines()[1]) >= 2
    assert "rows of python.steps are damaged" in answer.stderr


@pytest.mark.fault("R6")
def test_a_ring_that_is_gone_for_good_is_told(training: Target, fault: faults.Reached) -> None:
    """Cut and then removed it cannot be made whole: memory takes its place, and that is told."""
    for ring in cut(training, 0):
        ring.unlink()
    wait_until(
        lambda: "python.steps: the file could no longer be written to" in told(training),
        "a note that the ring is lost",
    )
    fault.equals("rings cut and removed: exit code", None, training.process.poll())


def test_a_ring_that_is_removed_is_missed(training: Target) -> None:
    """A table whose file is gone has no rows, and the answer says why."""
    training.folder.ring("steps").unlink()
    done = training.run(
        str(training.pid), "query", "--format=jsonl", "SELECT count(*) FROM python.steps"
    )
    assert done.returncode == 0
    assert "the file of python.steps was removed while the process runs" in done.stderr
    sql = "SELECT count(*) FROM python.collectives"
    other = training.run(str(training.pid), "query", "--format=jsonl", sql)  # it never had one
    assert (other.returncode, "was removed" in other.stderr) == (0, False)


@pytest.mark.fault("R6")
def test_a_run_folder_that_is_removed_is_made_anew(training: Target, fault: faults.Reached) -> None:
    """As a logout removes it: an attach has the agent begin a new record, which says so."""
    old, pid = training.folder.path, str(training.pid)
    assert training.run(pid, "act", "clip", "1.0").returncode == 0
    shutil.rmtree(training.home)
    done = training.run("attach", str(training.pid))
    assert done.returncode == 0, done.stderr
    training.wait_for_step(3)
    fault.equals("run folder removed: exit code", None, training.process.poll())
    told = " ".join(training.run("list").stderr.split())
    assert f"{old} was removed while it ran: the record begins anew; clip (action 1) has" in told
    assert training.run(str(training.pid), "eval", "6 * 7").stdout == "42\n"
    left = training.run(str(training.pid), "detach")
    assert left.returncode == 0, left.stderr
    wait_until(lambda: not old.exists(), "the agent to leave")
    assert training.process.poll() is None


_OWN_FAULT = """
import mmap, os, sys, torch
torch.nn.Linear(2, 2)(torch.zeros(1, 2))
with open(sys.argv[1], "wb+") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
    file.truncate(0)
print("now", flush=True)
if sys.argv[2] == "sent":
    os.kill(os.getpid(), 7)
else:
    print(memory[0])
"""


@pytest.mark.parametrize("way", ["a fault", "sent"])
def test_a_bus_error_of_the_programs_own_stays_one(way: str, tmp_path: Path) -> None:
    """It ends as without us, and the stacks at that moment are on record."""
    script = tmp_path / "fault.py"
    script.write_text(_OWN_FAULT)
    done = subprocess.run(
        [sys.executable, "-m", "probing._run", str(script), str(tmp_path / "file"), way],
        cwd=tmp_path,
        env=clean_env(tmp_path / "home", PROBING="1"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGBUS, "now\n", "")
    (folder,) = RunDirectory(tmp_path / "home").folders()
    text = folder.fatal_signal.read_text()
    assert "Fatal Python error: Bus error" in text
    assert "fault.py" in text
