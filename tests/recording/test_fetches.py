"""Modules that are called as a DataLoader makes a batch: the record against the script's clock."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest

from probing.ring import native
from tests.harness.recorded_runs import Rows, Run
from tests.harness.targets import start_program

pytestmark = pytest.mark.torch

IN_C = native.IN_C is not None and os.environ.get("TESTS_NATIVE") != "0"
FETCHED = ("transformed", "encoded", "validated", "failing", "nested", "streamed")
WAYS = (*FETCHED, "generated", "in_another_thread")
STEPS, BATCH = 6, 4
CALLS = (
    "SELECT step, module, class, root, depth, training, failed, count(*) AS n"
    " FROM python.torch_trace WHERE stage = 'forward' GROUP BY ALL ORDER BY ALL"
)
Runs = Callable[[str, str], Run]
by_both = pytest.mark.parametrize(
    "kind",
    [pytest.param("C", marks=pytest.mark.skipif(not IN_C, reason="no C part here")), "Python"],
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs each way once, with module calls recorded by the one part or the other."""

    @functools.cache
    def run(way: str, kind: str) -> Run:
        cwd = tmp_path_factory.mktemp(f"{way}_{kind}")
        extra = {"PROBING": "1", "PROBING_NATIVE": str(int(kind == "C"))}
        target = start_program("fetching", way, home=cwd / "home", cwd=cwd, **extra)
        try:
            return Run(target)
        finally:
            target.reap()

    return run


def steps_of(run: Run) -> Rows:
    """The rows of the steps that have ended, each beside what the script has measured."""
    rows = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert len(rows) == len(run.steps) >= STEPS
    assert run.problems() == ()
    return [row | {"script": facts} for row, facts in zip(rows, run.steps, strict=True)]


@by_both
@pytest.mark.parametrize("way", FETCHED)
def test_the_making_of_a_batch_is_waited_for(way: str, kind: str, runs: Runs) -> None:
    """What modules take in it is `data_wait_s`: no less than they slept, no more than it lasted."""
    # The first step begins with the call of the model.
    for row in steps_of(runs(way, kind))[1:]:
        script = row["script"]
        assert script["slept"] <= row["data_wait_s"] <= script["waited"], row
        assert row["forward_s"] <= script["called"], row
        assert row["model"] == "model"
        assert row["micro_batches"] == 1
        assert row["samples"] == BATCH


@by_both
@pytest.mark.parametrize("way", WAYS)
def test_it_is_no_evaluation(way: str, kind: str, runs: Runs) -> None:
    """Calls without gradients among them are none, whatever else is evaluated."""
    run = runs(way, kind)
    rows = run.ask("SELECT model, sum(calls)::INT AS calls FROM python.evaluations GROUP BY ALL")
    wanted = {"Linear": run.ends.get("validated")}
    assert {row["model"]: row["calls"] for row in rows} == {k: v for k, v in wanted.items() if v}


@by_both
@pytest.mark.parametrize("way", WAYS)
def test_the_calls_are_on_record(way: str, kind: str, runs: Runs) -> None:
    """Each has its row, under its own root."""
    run = runs(way, kind)
    rows = [row for row in run.ask(CALLS) if row["class"] == "Nap"]
    assert {(row["root"], row["depth"]) for row in rows} == {("Sequential", 1)}
    assert sum(row["n"] for row in rows) == run.ends["nap"]


@pytest.mark.skipif(not IN_C, reason="no C part here")
@pytest.mark.parametrize("way", WAYS)
def test_both_parts_record_the_same(way: str, runs: Runs) -> None:
    """The calls of each step, and the steps but for their times."""
    steps = "SELECT step, model, micro_batches, samples, loss FROM python.steps ORDER BY step"
    in_c, in_python = runs(way, "C"), runs(way, "Python")
    assert in_c.ask(CALLS) == in_python.ask(CALLS)
    assert in_c.ask(steps) == in_python.ask(steps)


@by_both
def test_a_failure_among_them_is_the_datasets(kind: str, runs: Runs) -> None:
    """Its calls and its batch have failed, memory that ran out did so for data, no step has."""
    run = runs("failing", kind)
    assert (run.ends["MemoryError"], run.ends["KeyboardInterrupt"]) == (1, 1)
    failed = "SELECT module, count(*) AS n FROM python.torch_trace WHERE failed"
    rows = run.ask(f"{failed} GROUP BY module ORDER BY module")
    assert rows == [{"module": "0", "n": 2}, {"module": "Sequential", "n": 2}]
    assert run.ask("SELECT count(*) AS n FROM python.batches WHERE failed") == [{"n": 2}]
    assert run.ask("SELECT phase FROM python.ooms") == [{"phase": "data"}]


@by_both
def test_what_no_loader_makes_is_the_steps_own(kind: str, runs: Runs) -> None:
    """A generator that calls modules is like any other code between two steps."""
    for row in steps_of(runs("generated", kind))[1:]:
        assert row["data_wait_s"] is None
        assert row["forward_s"] >= row["script"]["slept"]


@by_both
def test_another_thread_may_fetch(kind: str, runs: Runs) -> None:
    """That its dataset calls a model makes no training of it."""
    run = runs("in_another_thread", kind)
    assert {row["model"] for row in steps_of(run)} == {"model"}
    (training,) = run.ask("SELECT DISTINCT thread_id FROM python.steps")
    (fetching,) = run.ask("SELECT DISTINCT thread_id FROM python.batches")
    assert training != fetching
