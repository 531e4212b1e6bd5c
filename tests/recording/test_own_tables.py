"""What a script adds to tables of its own is on record, and asked like any other table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import probing
from tests.harness.targets import Target

OWN = "SELECT * EXCLUDE (step, thread_id, start_ns, seq) FROM"


@pytest.fixture
def ready(program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Target]:
    """Starts the program in one of its ways, and waits until its rows are there."""

    def start(*way: str, **env: str) -> Target:
        target = program("own_rows", *way, **env)
        target.wait_for_output("ready")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        target.wait_for_server()
        return target

    return start


def asked(target: Target, sql: str) -> list[dict[str, Any]]:
    """The rows of a statement."""
    return probing.connect(target.pid).query(sql).rows()


def json_of(target: Target, *words: str) -> Any:
    """What a command says."""
    done = target.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.anypython
def test_rows_are_as_they_were_added(ready: Callable[..., Target]) -> None:
    """Texts are cut between letters; what does not fit is NULL and counted; rows outlive `kill`."""
    target = ready("rows")
    rows = asked(target, f"{OWN} episodes ORDER BY seq")
    nothing = {"episode": None, "reward": None, "note": None, "won": None}
    assert str(rows[1].pop("reward")) == "nan"
    assert rows == [
        {"episode": 1, "reward": 0.5, "note": "Grüße", "won": True},
        {"episode": 2, "note": None, "won": None},
        {**nothing, "note": "é" * 32},
        nothing,
        nothing,
    ]
    (source,) = asked(target, "SELECT * FROM probing.sources WHERE source = 'episodes'")
    assert (source["state"], source["table"], source["faults"]) == ("on", "python.episodes", 0)
    assert source["note"] == "7 values could not be stored, the newest: there is no column rewrd"
    told = target.run(str(target.pid), "tables", "episodes")
    assert "python.episodes (recorded)" in told.stdout
    assert "note       VARCHAR" in told.stdout
    assert "One row per episode" in target.run(str(target.pid), "tables", "-n", "0").stdout
    wrong = target.run(str(target.pid), "tables", "episode")
    assert (wrong.returncode, "Did you mean python.episodes?" in wrong.stderr) == (2, True)
    target.kill()
    assert asked(target, "SELECT value FROM python.later") == [{"value": 7}]
    (held,) = [t for t in json_of(target, str(target.pid), "tables") if "episodes" in t["name"]]
    assert (held["rows"], held["written"], held["dropped"]) == (5, 5, 0)


@pytest.mark.anypython
def test_the_ring_holds_the_newest(ready: Callable[..., Target]) -> None:
    """Of 20,000 rows in a table of 1,000 the newest are there, and the others are counted."""
    holds_the_newest(ready, 20_000)


@pytest.mark.torch
def test_what_is_told_behind_a_step_is_that_steps(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the next begins with a batch, a call or a pass; behind a mark of the script's not."""
    target = program("told_steps", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    rows = asked(target, "SELECT name, value, step FROM metrics ORDER BY seq")
    assert {row["name"] for row in rows} == {
        "batch_came", "called", "passed", "stepped", "epoch_ended", "validated", "without_batch",
        "behind_mark",
    }  # fmt: skip
    assert [row for row in rows if row["value"] != row["step"]] == []
    losses = asked(target, "SELECT told, loss FROM losses JOIN steps USING (step)")
    assert [row["told"] for row in losses] == [pytest.approx(row["loss"]) for row in losses]
    assert len(losses) == 6


@pytest.mark.nightly
@pytest.mark.anypython
def test_the_ring_holds_the_newest_of_a_million(ready: Callable[..., Target]) -> None:
    """As above, after 10^6."""
    holds_the_newest(ready, 1_000_000)


def holds_the_newest(ready: Callable[..., Target], added: int) -> None:
    """Add so many, and look."""
    target = ready("many", str(added))
    sql = "SELECT count(*) AS n, min(episode) AS first, max(episode) AS last FROM episodes"
    assert asked(target, sql) == [{"n": 1024, "first": added - 1024, "last": added - 1}]
    (held,) = [t for t in json_of(target, str(target.pid), "tables") if "episodes" in t["name"]]
    assert (held["written"], held["overwritten"]) == (added, added - 1024)


@pytest.mark.anypython
def test_a_forked_child_writes_nothing_into_its_parents_table(ready: Callable[..., Target]) -> None:
    """One that starts an agent has its own, with the table that its parent has declared."""
    target = ready("forked")
    assert asked(target, "SELECT episode FROM episodes") == [{"episode": 1}, {"episode": 4}]
    child = next(
        line.split()[1] for line in target.output.splitlines() if line.startswith("child ")
    )
    own = probing.connect(int(child)).query("SELECT episode FROM episodes").rows()
    assert own == [{"episode": 3}]
    names = {t["name"] for t in json_of(target, str(target.pid), "tables")}
    assert "python.of_the_child" not in names


@pytest.mark.anypython
def test_an_agent_goes_on_where_the_one_before_it_stopped(ready: Callable[..., Target]) -> None:
    """What was added without one, or while nothing is recorded, is not there."""
    target = ready("stopped")
    assert asked(target, "SELECT episode, seq FROM episodes") == [
        {"episode": 1, "seq": 1},
        {"episode": 4, "seq": 2},
    ]
    done = target.run(str(target.pid), "config", "recording=false")
    assert done.returncode == 0, done.stderr
    (source,) = asked(target, "SELECT state FROM probing.sources WHERE source = 'episodes'")
    assert source["state"] == "off"
    assert not probing.connect(target.pid).status().is_recording
    (row,) = json_of(target, "list")
    assert row["state"] == "not recorded"


@pytest.mark.torch
def test_ranks_are_asked_together_and_kept(ready: Callable[..., Target], tmp_path: Path) -> None:
    """Tensors are numbers, rows have their step, and a table that one rank has is one of all."""
    job = {"WORLD_SIZE": "2", "PROBING_JOB": "rl", "TORCHELASTIC_RUN_ID": "rl"}
    first, second = ready("training", RANK="0", **job), ready("training", RANK="1", **job)
    assert asked(first, "SELECT step, episode, reward, won FROM episodes ORDER BY seq") == [
        *({"step": n, "episode": n, "reward": 0.25, "won": None} for n in range(3)),
        {"step": 2, "episode": None, "reward": None, "won": True},
    ]
    (source,) = asked(first, "SELECT note FROM probing.sources WHERE source = 'episodes'")
    assert source["note"].startswith("2 values could not be stored, the newest: note is a str, and")

    def both(sql: str) -> list[dict[str, Any]]:
        done = first.run("-t", "all", "query", sql, "--json")
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    sql = "SELECT rank, count(*) AS n, max(episode) AS last FROM episodes GROUP BY ALL ORDER BY 1"
    assert both(sql) == [{"rank": rank, "n": 4, "last": 2} for rank in (0, 1)]
    assert both("SELECT rank, value FROM only_one") == [{"rank": 1, "value": 1}]
    joined = (
        "SELECT e.rank, s.step FROM episodes e JOIN steps s USING (rank, step) WHERE reward > 0"
    )
    assert len(both(joined)) == 6
    assert "episodes" in {row["name"] for row in both("SHOW TABLES")}
    for target in (first, second):
        target.kill()
    runs = str(tmp_path / "runs")
    assert first.run("-t", "all", "export", runs).returncode == 0
    kept = first.run("history", "query", runs, f"{sql}", "--json")
    assert json.loads(kept.stdout) == [{"rank": rank, "n": 4, "last": 2} for rank in (0, 1)]
