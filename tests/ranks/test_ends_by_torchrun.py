"""Ranks whose ends only torchrun has seen: it has taken their exit codes, and wrote them down."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from probing.postmortem.launcher_logs import parse
from tests.harness.targets import DEADLINE_S, clean_env, program_path, run_command, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

READY = re.compile(r"^ready (\d) (\d+)$", re.MULTILINE)
RANKS = 3
SAYS = {
    "killed": (
        "All ranks have ended, rank 1 first: it ended without a word",
        "Its exit status, which its launcher wrote to {log}, is signal SIGKILL",
    ),
    "leaves": (
        "All ranks have ended, rank 1 first: it left by itself with exit code 3, by sys.exit(3) at"
        " parted_rank.py:24 in main",
    ),
}


@pytest.fixture
def torchrun(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """The real one with three ranks, which all have an agent; its output is the file `log`."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    words += ["--rdzv-id=night", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    words += [str(program_path("parted_rank")), request.param]
    env = clean_env(tmp_path / "home", PROBING="all")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()
    for _, pid in READY.findall((tmp_path / "log").read_text()):
        if Path(f"/proc/{pid}").exists():
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize(
    ("torchrun", "way"),
    [
        pytest.param("killed", "killed", id="killed"),
        pytest.param("leaves", "leaves", id="leaves", marks=pytest.mark.nightly),
    ],
    indirect=["torchrun"],
)
def test_who_failed_first_is_told_once_the_launcher_is_gone(
    torchrun: subprocess.Popen[bytes], way: str, tmp_path: Path
) -> None:
    """One was killed or left; those that torchrun ended because of it are its victims."""
    log = tmp_path / "log"
    wait_until(lambda: len(READY.findall(log.read_text())) == RANKS, "ranks")
    pids = {int(rank): int(pid) for rank, pid in READY.findall(log.read_text())}
    env = clean_env(tmp_path / "home")

    def are_known() -> bool:
        said = run_command("list", "--format", "json", cwd=tmp_path, env=env).stdout
        return all(str(pid) in said for pid in pids.values())

    wait_until(are_known, "the agents")
    if way == "killed":
        os.kill(pids[1], signal.SIGKILL)
    (tmp_path / "go").touch()
    assert torchrun.wait(DEADLINE_S) == 1
    done = run_command("-t", "job:night", "hang", "--check", cwd=tmp_path, env=env)
    said = " ".join(done.stdout.split())
    assert done.returncode == 6, done.stderr
    for words in SAYS[way]:
        assert words.format(log=log) in said
    assert "victims (2): ranks 0,2" in said
    assert "confidence: high: the others ended because another had" in said


LOG = """\
exitcode  : -9 (pid: 42)  (SIGKILL)
E1124 api.py:1002] failed (exitcode: 17) local_rank: 1 (pid: 43) of binary: /usr/bin/python
mpirun noticed that process rank 2 with PID 44 on node gpu7 exited on signal 11 (...).
exitcode  : 1 (pid: 45)
exitcode  : -15 (pid: 45)  (SIGTERM)
exitcode  : 1234567 (pid: 46)
"""


@pytest.mark.parametrize(
    ("pid", "code"), [(42, -9), (43, 17), (44, -11), (45, -15), (46, None), (4, None), (442, None)]
)
def test_lines_of_launchers_are_read(pid: int, code: int | None) -> None:
    """The last line of a process counts, and nothing that is no exit code of its own."""
    assert parse(LOG.encode(), pid) == code
    assert parse(b"\xff" + LOG.encode()[::-1], pid) is None
