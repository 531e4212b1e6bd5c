"""Real trainings, kept: what is in their record is in the history, row by row."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probing.history.query import History
from probing.ring import names
from probing.ring.arrow_tables import to_arrow
from probing.ring.reader import read_ring
from probing.rundir.folders import ProcessFolder
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch

Rows = list[tuple[Any, ...]]
KEPT = ("steps", "torch_trace", "micro_batches", "optimizer_steps", "memory", "overhead")


def recorded(folder: ProcessFolder, table: str) -> Rows:
    """The rows of a ring."""
    snapshot = read_ring(folder.ring(table))
    assert snapshot.overwritten == 0
    found = to_arrow(snapshot, names.decode_names(folder.names.read_bytes()), None)
    return _sorted(found.to_pylist())


def kept(history: Path, table: str, columns: list[str]) -> Rows:
    """The same rows as they came out of the history."""
    listed = ", ".join(f'"{column}"' for column in columns)
    sql = f"SELECT {listed} FROM {table}"
    return _sorted(History(str(history)).query(sql, timeout_s=DEADLINE_S).to_pylist())


def _sorted(rows: list[dict[str, Any]]) -> Rows:
    return sorted((tuple(map(repr, row.values())) for row in rows), key=repr)


def assert_same(folder: ProcessFolder, history: Path) -> None:
    """Every recorded row is there once, with all of its values."""
    for table in KEPT:
        columns = _columns(folder, table)
        assert kept(history, table, columns) == recorded(folder, table), table
    assert recorded(folder, "torch_trace")


def _columns(folder: ProcessFolder, table: str) -> list[str]:
    return to_arrow(read_ring(folder.ring(table)), [None], None).column_names


def exported(target: Target, history: Path) -> dict[str, Any]:
    """What the command says it has exported."""
    done = target.run("export", str(target.pid), str(history), "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    answer: dict[str, Any] = found
    return answer


def with_new_rows(told: dict[str, Any]) -> dict[str, Any] | None:
    """What was exported, if that is anything."""
    return told if any(table["new"] for table in told["tables"]) else None


def test_a_killed_training_is_kept_whole(fresh_training: Target, tmp_path: Path) -> None:
    """Exported twice while it runs and once after `kill -9`: rows in are rows out."""
    history, target = tmp_path / "history", fresh_training
    target.wait_for_step(12)
    for _ in range(2):
        told = wait_until(lambda: with_new_rows(exported(target, history)), "settled rows")
        assert not told["has_ended"]
    target.kill(signal.SIGKILL)
    told = exported(target, history)
    assert told["has_ended"]
    assert {table["waiting"] + table["damaged"] for table in told["tables"]} == {0}
    assert_same(target.folder, history)
    done = target.run("history", "runs", str(history), "--json")
    (run,) = json.loads(done.stdout)
    assert (run["run"], run["running"]) == (told["run"], 0)
    assert "without a word" in run["ending"]
    assert run["torch"].startswith("2.")
    assert run["last_step"] >= 12


def test_a_training_that_failed_is_kept_with_its_error(
    program: Callable[..., Target], tmp_path: Path
) -> None:
    """The exception that ended it, what it ran in, and the saved questions."""
    history, target = tmp_path / "history", program("exits", "exception")
    assert target.process.wait(DEADLINE_S) == 1
    exported(target, history)
    assert_same(target.folder, history)
    env: Any = {"PROBING_HISTORY": str(history)}
    done = target.run("history", "query", "SELECT ending FROM processes", "--json", **env)
    assert "the training's own error" in json.loads(done.stdout)[0]["ending"]
    done = target.run("history", "query", "@last-steps", "--json", **env)
    assert len(json.loads(done.stdout)) == 3, done.stderr
    sql = "SELECT value FROM environment WHERE kind = 'version' AND name = 'torch'"
    done = target.run("history", "query", str(history), sql, "--json")
    assert json.loads(done.stdout)[0]["value"].startswith("2.")


def test_words_that_do_not_fit_are_told(program: Callable[..., Target], tmp_path: Path) -> None:
    """One sentence each, nothing on stdout, and the exit code of wrong usage."""
    target = program("exits", "sys.exit")
    assert target.process.wait(DEADLINE_S) == 3
    pid, history = str(target.pid), str(tmp_path / "history")
    (tmp_path / "taken").write_text("")
    for words, sentence in (
        (("export", history), "say which processes to export"),
        ((pid, "export"), "say where to export to"),
        ((pid, "export", "ftp://server/runs"), "is no place for a history"),
        (("history", "query", history, "FROM steps", "--rank", "1"), "--rank is one of a run"),
        ((pid, "export", str(tmp_path / "taken" / "runs")), "cannot be written"),
        (("history", "runs"), "say which history to ask"),
        (("history", "runs", history), "there is no such folder"),
        (("history", "show", history), "say which history to ask"),
        (("history", "compact", history), "no process was exported to it"),
        (("history", "compact", history, "--keep-bytes", "much"), "'much' is not a size"),
        (("history", "compact", history, "--keep-days", "0"), "--keep-days"),
        (("history", "query", history, "FROM steps", "x"), "one statement"),
        ((pid, "history", "runs", history), "takes no endpoint"),
    ):
        done = target.run(*words)
        assert (done.returncode, done.stdout) == (2, ""), (words, done.stdout)
        assert sentence in done.stderr, (words, done.stderr)
