"""The ranks of a job, kept by one command, are one run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from probing.rundir.folders import ProcessFolder
from tests.harness.ring_writer import trace_writer
from tests.harness.targets import clean_env, run_command

pytestmark = pytest.mark.anypython


def test_all_ranks_are_exported_and_one_failure_costs_no_other(
    ended: Callable[..., ProcessFolder], tmp_path: Path
) -> None:
    """One run of three ranks; a rank that cannot be is told, and gives the exit code."""
    for rank in range(3):
        folder = ended(77 + rank, job="llm", rank=rank, world_size=4)
        trace_writer(capacity=64, rows=10 + rank).save(folder.ring("torch_trace"))
    history, env = tmp_path / "history", clean_env(tmp_path / "home")

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        done = run_command(*words, cwd=tmp_path, env=env)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    first, _ = run("-t", "job:llm", "export", str(history), "--json", "--project", "gpt")
    told = json.loads(first)
    assert [one["rank"] for one in told] == [0, 1, 2]
    assert len({one["run"] for one in told}) == 1
    listed, _ = run("history", "runs", str(history))
    assert "3 of 4" in listed
    sql = "SELECT rank, count(*) AS n FROM torch_trace GROUP BY rank ORDER BY rank"
    counted, _ = run("history", "query", str(history), sql, "--json")
    assert [row["n"] for row in json.loads(counted)] == [10, 11, 12]
    state = history / "_probing" / "state" / f"{told[1]['process']}.json"
    state.unlink()
    (part,) = history.glob(f"project=*/job=*/table=torch_trace/*/{told[1]['process']}.*")
    part.write_bytes(b"torn")
    again, complaint = run("-t", "job:llm", "export", str(history), "--json", code=1)
    assert [one["rank"] for one in json.loads(again)] == [0, 2]
    assert "rank 1" in complaint
    assert "is damaged" in complaint
