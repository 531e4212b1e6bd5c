"""Whatever moment an export is killed at, the rows that come out are those that went in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from probing.history.query import History
from tests.harness.targets import DEADLINE_S, clean_env, program_path

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize(
    ("kills", "capacity"),
    [(8, 4096), pytest.param(200, 16384, marks=pytest.mark.nightly), (6, 64)],
)
def test_no_kill_loses_or_doubles_a_row(tmp_path: Path, kills: int, capacity: int) -> None:
    """Rows in are rows out, each once; what the ring had overwritten before is counted."""
    history = tmp_path / "history"
    argv = [sys.executable, str(program_path("killed_exports")), str(tmp_path / "home")]
    argv += [str(history), str(kills), str(capacity)]
    done = subprocess.run(
        argv,
        env=clean_env(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["codes"] == [0, 0], told
    assert told["died"] > 0, told
    assert told["written"] > 40 * kills, told

    def ask(sql: str) -> list[dict[str, int]]:
        return History(str(history)).query(sql, timeout_s=DEADLINE_S).to_pylist()

    rows = ask("SELECT seq, count(*) AS times FROM torch_trace GROUP BY seq ORDER BY seq")
    assert {row["times"] for row in rows} == {1}, told
    (books,) = ask("SELECT exported, overwritten, damaged, waiting FROM probing.exports")
    assert (books["damaged"], books["waiting"]) == (0, 0), (books, told)
    assert books["exported"] == len(rows), (books, told)
    assert books["exported"] + books["overwritten"] == told["written"], (books, told)
    if capacity > told["written"]:
        assert [row["seq"] for row in rows] == list(range(1, told["written"] + 1)), told
    assert not list(history.glob("_probing/unfinished/*/*"))
