"""Threads that play by a policy, beside the one that trains it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from tests.harness.doctor import examine, sure
from tests.harness.recorded_runs import NEAR, Run
from tests.harness.targets import Target, program_path, start_program, wait_until

pytestmark = pytest.mark.torch

Start = Callable[..., Target]


@pytest.mark.parametrize(
    ("way", "native"),
    [("shared", "1"), ("shared", "0"), ("copied", "1"), ("two", "1"), ("later", "1")],
)
def test_steps_are_those_of_the_thread_that_trains(way: str, native: str, tmp_path: Path) -> None:
    """As many as it has made, with its losses and its samples; an actor's calls are calls alone."""
    target = start_program(
        "playing", way, home=tmp_path / "home", cwd=tmp_path, PROBING="1", PROBING_NATIVE=native
    )
    try:
        run = Run(target)
    finally:
        target.reap()
    ends = run.ends
    rows = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    before, steps = rows[: -ends["steps"]], rows[-ends["steps"] :]
    assert run.problems() == ()
    assert len(before) == ends["before"], "steps of inference, before anything was trained"
    assert [row["optimizer"] for row in before] == [None] * len(before)
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert {row["thread_id"] for row in steps} == {ends["learner"]}
    assert [row["loss"] for row in steps] == pytest.approx(ends["losses"], rel=NEAR)
    assert {(row["samples"], row["micro_batches"]) for row in steps} == {(8, 1)}
    (calls,) = run.ask(
        "SELECT count(*) AS n FROM python.torch_trace WHERE stage = 'forward' AND depth = 0"
        f" AND thread_id <> {ends['learner']}"
    )
    assert calls["n"] == ends["played"]
    assert run.ask(f"FROM python.evaluations WHERE step > {len(before)}") == []


def test_a_loss_that_is_not_finite_is_found_beside_an_actor(
    program: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` says so, and `eval` comes to the learner."""
    target = program("playing", "nan")
    target.wait_for_step(60)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    (last,) = process.query(
        "SELECT loss_finite FROM python.steps WHERE duration IS NOT NULL ORDER BY step DESC LIMIT 1"
    ).to_pylist()
    assert last == {"loss_finite": False}
    found = process.eval("step, losses[-1]")
    assert (found.thread, found.where, found.error) == ("learner", "safe point", None)
    assert found.value == f"({found.step}, nan)"
    assert "loss-not-finite" in sure(examine(target))


def test_a_learner_that_hangs_is_named_beside_an_actor(program: Start) -> None:
    """Though an actor is inside of a call of the model that began later."""
    target = program("playing", "stuck")
    target.wait_for_output("stuck")
    lines = program_path("playing").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "self._has_played.acquire()" in text)
    wait_until(
        lambda: f"playing.py:{line} in " in target.run(str(target.pid), "hang").stdout,
        "the learner's line",
    )
