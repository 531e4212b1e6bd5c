"""A job that the real torchrun has started anew: its attempts are told apart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.harness.targets import clean_env, program_path, run_command, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]

READY = re.compile(r"^ready (\d) (\d) (\d+)$", re.MULTILINE)


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[dict[tuple[int, int], int]]:
    """The processes of a job in its second attempt, those of the first too, by attempt and rank."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    words += ["--max-restarts=2", "--monitor-interval=0.1", "--rdzv-id=night"]
    words += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    words += [str(program_path("restarted_rank"))]
    log = tmp_path / "log"

    def ready() -> dict[tuple[int, int], int]:
        found = READY.findall(log.read_text())
        return {(int(attempt), int(rank)): int(pid) for attempt, rank, pid in found}

    with log.open("wb") as out:
        env = clean_env(tmp_path / "home", PROBING="all")
        process = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=out, stderr=out)
    try:
        wait_until(lambda: {(1, 0), (1, 1)} <= ready().keys(), "the second attempt")
        yield ready()
    finally:
        process.kill()
        process.wait()
        for pid in ready().values():
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)


def test_the_newest_attempt_is_asked_and_the_one_before_is_not_lost(
    pids: dict[tuple[int, int], int], tmp_path: Path
) -> None:
    """The job is its newest attempt; why the earlier one ended is told by its process."""
    env = clean_env(tmp_path / "home")

    def ask(*words: str, code: int = 0) -> tuple[str, str]:
        done = run_command(*words, cwd=tmp_path, env=env)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, " ".join(done.stderr.split())

    said, notes = ask("list", "--job", "--format", "json")
    members = json.loads(said)["members"]
    newest = {(1, member["rank"]): member["pid"] for member in members}
    assert newest == {key: pid for key, pid in pids.items() if key[0] == 1}
    assert "of attempt 0 left out, all ended; this is attempt 1" in notes

    sql = "SELECT DISTINCT rank, pid FROM python.steps ORDER BY rank"
    said, _ = ask("-t", "job:night", "query", sql, "--format", "json")
    assert [(row["rank"], row["pid"]) for row in json.loads(said)] == [
        (rank, pids[1, rank]) for rank in (0, 1)
    ]

    said, _ = ask("list", "--dead", "--format", "json")
    listed = {(one["attempt"], one["rank"]): (one["pid"], one["state"]) for one in json.loads(said)}
    assert listed[0, 1] == (pids[0, 1], "dead")
    assert listed[1, 1] == (pids[1, 1], "training")
    said, _ = ask("list", "--dead")
    assert re.search(rf"^ *{pids[1, 0]} +0 +1  training", said, re.MULTILINE)

    said, _ = ask("-t", "job:night", "doctor", "--check", "likely")
    assert "Nothing wrong was found" in said or "possible" in said
    said, _ = ask(str(pids[0, 1]), "doctor")
    assert "rank 1 first: it ended with an unhandled ConnectionError" in said
