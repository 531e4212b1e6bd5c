"""What is left out of the record to keep its cost within a budget, and how it is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from probing.ring import native
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch

STEPS = 150
LAYERS = 60
TinyModules = Callable[..., tuple[Target, probing.Process]]


@pytest.fixture
def tiny_modules(program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch) -> TinyModules:
    """Starts a training of 2,000 modules that do nothing and a large one, with a budget."""

    def start(overhead: str, **variables: str) -> tuple[Target, probing.Process]:
        # By Python: what C adds to a call is hardly ever too much.
        variables |= {"PROBING": "1", "PROBING_OVERHEAD": overhead, "PROBING_NATIVE": "0"}
        target = program("tiny_modules", **variables)
        target.wait_for_output("ready")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        return target, probing.connect(target.pid)

    return start


def test_the_smallest_modules_are_left_out_and_named(tiny_modules: TinyModules) -> None:
    """2,000 modules that do nothing cost more than a percent: they go, the large one stays."""
    target, process = tiny_modules("1")
    assert process.status().problems == ()
    rows = process.query(
        "SELECT step, max(thinned) AS thinned, max(rows) AS rows FROM probing.overhead"
        " WHERE step IN (0, 39) GROUP BY step ORDER BY step"
    ).to_pylist()
    assert rows[0]["thinned"] == 0
    assert rows[0]["rows"] > 2000
    assert 1000 < rows[1]["thinned"] <= 2000
    last = process.query(
        "SELECT count(*) FILTER (module = 'large' AND stage = 'forward') AS large,"
        " count(*) FILTER (module LIKE 'tiny.%') AS tiny,"
        " count(*) FILTER (module = 'Model' AND stage = 'backward') AS backward"
        " FROM python.torch_trace WHERE step = 39"
    ).to_pylist()[0]
    assert last["large"] == 1
    assert last["backward"] == 1
    assert last["tiny"] == 2000 - rows[1]["thinned"]
    live = process.live("sources")
    notes = [str(row[-1]) for row in live.rows if row[0] == "modules"]
    assert "left out of most steps, to keep within the budget: tiny." in notes[0]
    done = target.run("--timeout", "60", str(target.pid), "status")  # else the record's rows alone
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())  # whose lines break where the first name is a long one
    assert "left out of most steps, to keep within the budget: tiny." in said, done.stdout
    assert "recording costs" in said


def test_what_is_left_out_is_seen_now_and_then(tiny_modules: TinyModules) -> None:
    """Of the steps from 65 to 128 one has every module, with its backward pass.

    Those before, from whose time all is chosen anew, are long: what is left out stays so.
    """
    target, process = tiny_modules("1", LONG_STEPS="62 63 64 65")
    target.wait_for_step(131)
    rows = process.query(
        "SELECT step, count(*) FILTER (module LIKE 'tiny.%' AND stage = 'forward') AS tiny,"
        " count(*) FILTER (module = 'large' AND stage = 'backward') AS large,"
        " (SELECT max(thinned) FROM probing.overhead o WHERE o.step = t.step) AS thinned"
        " FROM python.torch_trace t WHERE step BETWEEN 65 AND 128 GROUP BY step"
    ).to_pylist()
    assert len(rows) == 64
    whole = [row for row in rows if row["tiny"] == 2000]
    assert [(row["large"], row["thinned"]) for row in whole] == [(1, 0)]
    others = [row for row in rows if row["tiny"] != 2000]
    wrong = [row for row in others if not row["tiny"] == 2000 - row["thinned"] < 1000]
    assert wrong == []


def test_nothing_is_left_out_where_it_costs_little(tiny_modules: TinyModules) -> None:
    """With a budget that is large enough, every module is in the record of every step."""
    _, process = tiny_modules("100000")
    rows = process.query(
        "SELECT step, count(*) AS n FROM python.torch_trace"
        " WHERE stage = 'forward' AND step < 40 GROUP BY step"
    ).to_pylist()
    assert {row["n"] for row in rows} == {2002}
    assert {row["step"] for row in rows} == set(range(40))


def test_that_the_training_was_held_is_no_cost(tiny_modules: TinyModules) -> None:
    """An eval that holds the training makes a step long, and nothing is left out for it."""
    target, process = tiny_modules("100000")
    results = [process.eval("import time; time.sleep(1.0)") for _ in range(2)]
    assert [result.where for result in results] == ["safe point"] * 2
    # Both may have held one step, which ends later.
    target.wait_for_step(target.step() + 3)
    longest = process.query(
        "SELECT max(duration) AS duration, max(cost_s) AS cost_s FROM probing.overhead"
        " WHERE step > 39"
    ).to_pylist()[0]
    assert longest["duration"] > 0.9
    assert longest["cost_s"] < 0.5


@pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python")
@pytest.mark.parametrize("overhead", ["1", "100000"])
def test_hooks_rest_in_most_steps_where_they_cost_too_much(
    overhead: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then few steps have the backward passes of modules, each all; all have calls, pass, loss."""
    variables = {"PROBING": "1", "PROBING_OVERHEAD": overhead}
    target = program("small_layers", str(STEPS), str(LAYERS), **variables)
    target.wait_for_output("ready", 2 * DEADLINE_S)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    assert process.status().problems == ()
    rows = process.query(
        "SELECT t.step, count(*) FILTER (stage = 'forward' AND depth = 1) AS calls,"
        " count(*) FILTER (stage = 'backward' AND depth = 0) AS passes,"
        " count(*) FILTER (stage = 'backward' AND depth = 1) AS modules,"
        " any_value(s.loss) AS loss, any_value(o.backward_modules) AS hooked"
        " FROM python.torch_trace t JOIN python.steps s USING (step)"
        " JOIN probing.overhead o USING (step)"
        " WHERE s.duration IS NOT NULL GROUP BY t.step ORDER BY t.step"
    ).to_pylist()
    note = _note_of(process, "backward")
    assert [row["step"] for row in rows] == list(range(STEPS))
    assert {(row["calls"], row["passes"], row["loss"] is None) for row in rows} == {
        (LAYERS, 1, False)
    }
    assert {row["modules"] for row in rows[:7]} == {LAYERS}
    few = [row["step"] for row in rows if row["modules"]]
    if overhead == "1":
        assert {row["modules"] for row in rows} == {0, LAYERS}
        assert {row["hooked"] > 0 for row in rows if row["modules"] == 0} == {False}
        assert 0 < len([step for step in few if step >= 50]) <= 50
        # Ranks that rest for longer or shorter have steps in common.
        assert all(step % 2 for step in few if step >= 50)
        assert "those of all modules in one step of" in note
    else:
        assert len(few) == len(rows)
        assert note == "every pass as a whole, and those of all modules"


def _note_of(process: probing.Process, source: str) -> str:
    """What `status` says of a source."""
    return next(str(row[-1]) for row in process.live("sources").rows if row[0] == source)
