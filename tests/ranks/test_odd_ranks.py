"""A real job of four ranks, one slow, one with another parameter, one that at last stays away."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from probing.cluster.job.members import find_members
from probing.cluster.ranks.differences import PARAMETER, compare_facts
from probing.cluster.ranks.gather_facts import gather_facts
from probing.cluster.ranks.question import Asking
from tests.harness.jobs import Job, start_job
from tests.harness.targets import Target, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SLOW, CHANGED, ASLEEP = 1, 3, 2
ODD = {"masked": 0, "option": 2, "drawn": 1}
TOKEN = "of-the-odd-ranks"
AT_STEPS = re.compile(r" \(at steps? [^)]*\)")
"""What is said of the ranks' steps where these are not the same."""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """The job, which goes on after each test."""
    cwd = tmp_path_factory.mktemp("odd")
    odds = (f"slow:{SLOW}", f"changed:{CHANGED}", *(f"{what}:{rank}" for what, rank in ODD.items()))
    job = start_job("odd_ranks", *odds, ranks=4, cwd=cwd)
    wait_until(lambda: job.ask(0, "SELECT max(step) AS s FROM python.steps")[0]["s"] > 15, "steps")
    yield job
    job.reap()


def answer(job: Job, *args: str) -> Any:
    """What a command over all ranks answers as JSON."""
    done = job.run("-t", "all", "--timeout", "110", *args, "--format", "json", timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert "asked 4 ranks: all answered" in done.stderr
    return json.loads(done.stdout)


def test_the_slow_rank_is_the_only_straggler(odd: Job) -> None:
    """All steps take equally long, and the one rank that is slow in backward is named with it."""

    def told() -> Any:
        report = answer(odd, "stragglers", "--steps", "12")
        return report if report["stragglers"] == [SLOW] else None

    report = wait_until(told, "the one straggler")  # on a busy machine all have slow steps
    (found,) = [pace for pace in report["ranks"] if pace["rank"] == SLOW]
    assert max(found["phases"], key=found["phases"].__getitem__) == "backward"
    assert found["excess_s"] > 0.03
    assert found["last_in"] >= found["slow_steps"] - 2
    durations = [pace["own_s"] + pace["blocked_s"] for pace in report["ranks"]]
    assert max(durations) < 2 * min(durations)


def test_the_changed_parameter_is_found_at_the_same_step(odd: Job) -> None:
    """All ranks look after the same step, and one parameter of one rank is not like the others."""
    found = answer(odd, "diff")
    assert len(found["steps"]) == 1
    assert found["steps"][0]["ranks"] == [0, 1, 2, 3]
    (one,) = [d for d in found["differences"] if d["kind"] == "parameter"]
    assert (one["name"], one["odd"]) == ("second.weight", [CHANGED])
    assert [group["ranks"] for group in one["groups"]] == [[3], [0, 1, 2]]
    assert found["equal"]["parameter"] == 5


def test_buffers_options_and_random_states_are_compared(odd: Job) -> None:
    """A buffer and an option that one rank has otherwise are faults; a random state is told."""
    found = answer(odd, "diff")
    of_kind = {d["kind"]: d for d in found["differences"] if d["kind"] in {"buffer", "optimizer"}}
    assert of_kind["buffer"]["name"] == "mask"
    assert of_kind["buffer"]["odd"] == [ODD["masked"]]
    assert of_kind["optimizer"]["name"] == "SGD group 0 foreach"
    assert of_kind["optimizer"]["groups"][0] == {"value": "False", "ranks": [ODD["option"]]}
    random = {d["name"]: d["odd"] for d in found["places"] if d["kind"] == "random"}
    assert random["torch"] == [ODD["drawn"]]


def test_ranks_of_several_machines_look_at_the_same_step(
    odd: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if each rank had a node server of its own: all look together."""
    monkeypatch.setenv("PROBING_HOME", str(odd.home))
    argv = [sys.executable, "-m", "probing.cluster.node", "--listen", "0.0.0.0:0"]
    node = Target(argv, odd.home, odd.cwd, PROBING_TOKEN=TOKEN, PROBING_INSECURE_PLAINTEXT="1")
    try:
        node.wait_for_output("listening on")
        port = node.output.partition("listening on ")[2].partition(";")[0].rpartition(":")[2]
        members = find_members([f"127.0.0.1:{port}"], token=TOKEN, timeout_s=60).members
        hosts = [f"127.0.0.{1 + rank}" for rank in range(4)]
        apart = tuple(
            dataclasses.replace(m, endpoint=m.endpoint.replace("127.0.0.1", hosts[rank]))
            for rank, m in enumerate(members)
        )
        asking = Asking(members=apart, timeout_s=120, token=TOKEN)
        told, outcomes = gather_facts(asking)
    finally:
        node.reap()
    assert [outcome.state for outcome in outcomes] == ["answered"] * 4
    assert len({one.facts.step for one in told}) == 1
    assert told[0].facts.step is not None
    (one,) = [d for d in compare_facts([t.facts for t in told]).differences if d.kind == PARAMETER]
    assert (one.name, one.odd) == ("second.weight", (CHANGED,))


def test_equal_results_of_eval_are_one_line(odd: Job) -> None:
    """What most ranks give is one line, and the one that differs is said to."""
    code = "import os; os.environ['RANK'] == '3'"
    done = odd.run("-t", "all", "eval", code, timeout_s=120)
    lines = [AT_STEPS.sub("", line).split() for line in done.stdout.splitlines()]
    assert lines == [["rank", "3", "differs:", "True"], ["ranks", "0-2:", "False"]]
    failing = "1 / (int(__import__('os').environ['RANK']) - 1)"
    done = odd.run("-t", "all", "eval", failing, timeout_s=120)
    assert done.returncode == 1
    assert "rank 1:\n  Traceback" in AT_STEPS.sub("", done.stdout)
    assert "ZeroDivisionError" in done.stdout


def test_a_rank_that_stands_still_for_an_eval(odd: Job, tmp_path: Path) -> None:
    """The eval is named with its code and how it is ended, and not what holds the thread for it."""
    is_over = tmp_path / "over"
    code = (
        f"import time, pathlib\nwhile not pathlib.Path({str(is_over)!r}).exists(): time.sleep(0.01)"
    )
    words = ("-t", "rank:0", "eval", "--timeout", "110", code)
    with ThreadPoolExecutor(1) as beside:
        evaluating = beside.submit(odd.run, *words, timeout_s=120)
        try:
            verdict = wait_until(lambda: held_by_eval(odd), "a rank that stands still")
        finally:
            is_over.touch()
        assert evaluating.result().returncode == 0
    (cause,) = verdict["causes"]
    number = odd.ask(0, "SELECT max(eval_id) AS n FROM python.evals")[0]["n"]
    said = rf"stands still for eval {number}, which has run for .* \(`import time, pathlib\.\.\.`\)"
    assert re.match(said, cause["what"])
    assert "at odd_ranks.py:" in cause["what"]
    assert "safe_points" not in " ".join(cause["evidence"])
    assert f"jobs cancel {number}`" in " ".join(verdict["next_steps"])


def held_by_eval(odd: Job) -> Any:
    """The verdict once the others wait for rank 0."""
    done = odd.run("-t", "all", "hang", "--format", "json", timeout_s=120)
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    named = [cause["rank"] for cause in verdict["causes"]]
    return verdict if named == [0] and verdict["kind"] == "missing" else None


def test_the_rank_that_stays_away_is_a_class_of_its_own(odd: Job) -> None:
    """One rank sleeps while three wait in all_reduce: two classes, both the same in all looks."""
    name = str(odd.folder(ASLEEP).path)
    assert odd.run("-t", name, "eval", "--assign", "IS_ASLEEP = True").returncode == 0

    def innermost() -> dict[str, list[int]]:
        merged = answer(odd, "backtrace", "--snapshots", "2")
        main = [one for one in merged["classes"] if one["thread"] == "MainThread"]
        return {one["frames"][-1]["func"]: one["same"] for one in main}

    try:
        classes = {"fall_asleep": [2], "all_reduce": [0, 1, 3]}
        wait_until(lambda: innermost() == classes, "two classes")
        folded = odd.run("-t", "all", "backtrace", "--format", "folded", timeout_s=120).stdout
        assert [line.split(";")[0] for line in folded.splitlines()] == ["rank 2", "ranks 0-1,3"]
    finally:
        awake = odd.run("-t", name, "eval", "--now", "--assign", "IS_ASLEEP = False")
    assert awake.returncode == 0, awake.stderr
