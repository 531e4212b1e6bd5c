"""What is recorded when the agent comes into a training that is already running."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import probing
from probing.ring import native
from tests.harness.targets import Target

pytestmark = pytest.mark.torch

PLACES = ("loader", "forward", "backward", "before optimizer", "after optimizer")
BY_STEP = (
    "SELECT step, list((stage, module, root, class, depth, recomputed, failed)"
    " ORDER BY start_ns, seq) AS rows FROM python.torch_trace"
    " WHERE duration IS NOT NULL GROUP BY step ORDER BY step"
)

IN_C = native.IN_C is not None and os.environ.get("TESTS_NATIVE") != "0"
Run = Callable[..., tuple[Target, Callable[[str], list[dict[str, Any]]]]]


@pytest.fixture
def run(program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program to its end, and hands over what asks for its record."""

    def run(*args: str) -> tuple[Target, Callable[[str], list[dict[str, Any]]]]:
        target = program("late", *args, PROBING="0")
        target.wait_for_output("done")
        monkeypatch.setenv("PROBING_HOME", str(target.home))

        def ask(sql: str) -> list[dict[str, Any]]:
            process = probing.connect(target.pid)
            card = target.folder.read_card()
            assert card is not None
            assert card.problems == ()
            return process.query(sql).to_pylist()

        return target, ask

    return run


def losses(target: Target) -> list[str]:
    """The lines that the program printed per step."""
    return [line for line in target.output.splitlines() if line.startswith("step")]


def is_backward_of_a_module(row: dict[str, Any]) -> bool:
    """Whether a row is that of a module's backward pass, and not of the whole one."""
    stage, _, _, _, depth, *_ = row.values()
    return stage == "backward" and depth > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", "lbfgs", "in_thread"])
def test_the_first_step_recorded_is_a_whole_one(kind: str, run: Run) -> None:
    """Wherever in a step the agent comes, what it records is what one that was there first does."""
    bare, _ = run(kind, "never")
    _, ask = run(kind, "start")
    whole = [row["rows"] for row in ask(BY_STEP)][1]
    assert len(whole) > 20
    first = whole
    if not IN_C:  # Python knows after one step which modules' backward passes are worth their cost
        first = [row for row in whole if not is_backward_of_a_module(row)]
        assert len(first) < len(whole)
    # AdamW counts its steps, LBFGS does not: then they are counted from when the agent came.
    numbers = [1, 2] if kind == "lbfgs" else [3, 4]
    for place in PLACES:
        target, ask = run(kind, place)
        found = ask(BY_STEP)[:2]
        assert [row["step"] for row in found] == numbers, place
        assert [row["rows"] for row in found] == [first, whole], place
        steps = ask("SELECT step, duration FROM python.steps ORDER BY seq")
        assert steps[0]["step"] == numbers[0], place
        assert steps[0]["duration"] is not None, place
        assert losses(target) == losses(bare), place
        assert len(losses(target)) == 6


def test_bare_tensors_are_recorded_from_the_second_pass_on(run: Run) -> None:
    """Where no module is called and no optimizer steps, backward passes begin the record."""
    target, ask = run("bare", "loader")
    rows = ask("SELECT loss FROM python.steps WHERE duration IS NOT NULL ORDER BY seq")
    printed = [float.fromhex(line.split()[-1]) for line in losses(target)]
    assert len(rows) == 2  # of three passes that are recorded; the last step has not ended
    assert [row["loss"] for row in rows] == pytest.approx(printed[3:5])


@pytest.mark.parametrize("place", ["before actor", "before critic"])
def test_optimizers_in_turns_make_one_step_from_the_first_on(place: str, run: Run) -> None:
    """Before the pattern is known, a critic's step belongs to the actor's before it."""
    _, ask = run("in_turns", place)
    rows = ask(
        "SELECT list(optimizer ORDER BY seq) AS steps FROM python.optimizer_steps"
        " GROUP BY step ORDER BY step"
    )
    whole = rows[1]["steps"]
    assert len(whole) == 2
    assert whole[0] != whole[1]
    assert [row["steps"] for row in rows[1:]] == [whole] * (len(rows) - 1)
    assert rows[0]["steps"] in ([whole[1]], [whole[1], *whole], whole)


@pytest.mark.parametrize(
    ("place", "count"), [("before actor", 12), ("before critic", 12), ("behind both", 11)]
)
def test_a_frozen_discriminator_makes_no_step_of_its_own(place: str, count: int, run: Run) -> None:
    """Each step of the script has one row, though the first may end before the discriminator's."""
    _, ask = run("against", place)
    rows = ask("SELECT count(*) AS n FROM python.steps WHERE duration IS NOT NULL")
    assert rows == [{"n": count}]
    rows = ask(
        "SELECT list(optimizer ORDER BY seq) AS steps FROM python.optimizer_steps"
        " GROUP BY step ORDER BY step"
    )
    whole = rows[-2]["steps"]
    assert len(set(whole)) == len(whole) == 2
    assert [row["steps"] for row in rows[2:-1]] == [whole] * (len(rows) - 3)


def test_inference_is_recorded_from_the_next_whole_call_on(run: Run) -> None:
    """Without an optimizer the call in progress is left out, and the next one is step 0."""
    _, ask = run("infer", "forward")
    rows = ask("SELECT step, module, depth FROM python.torch_trace WHERE stage = 'forward'")
    assert [row["module"] for row in rows if row["depth"] == 0] == ["Net"] * 3
    assert len(rows) == 3 * 11
    assert {row["step"] for row in rows} == {0, 1, 2}


def test_an_evaluation_is_recorded_from_its_second_call_on(run: Run) -> None:
    """Where an optimizer exists, calls without gradients are taken for what they are."""
    _, ask = run("evaluate", "loader")
    rows = ask("SELECT count(*) AS n FROM python.torch_trace WHERE module = 'Net' AND depth = 0"
               " AND stage = 'forward'")  # fmt: skip
    assert rows == [{"n": 3}]


def test_a_teacher_does_not_begin_the_record(run: Run) -> None:
    """A call without gradients in the middle of a training step is not taken for an evaluation."""
    _, ask = run("distil", "forward")
    rows = ask("SELECT min(step) AS first FROM python.torch_trace")
    assert rows == [{"first": 1}]
    rows = ask("SELECT count(*) AS n FROM python.torch_trace WHERE step = 1 AND module = 'Net'"
               " AND stage = 'forward'")  # fmt: skip
    assert rows == [{"n": 2}]


@pytest.mark.parametrize(("place", "first"), [("sample 1", 3), ("behind step", 4)])
def test_what_a_dataset_calls_does_not_begin_the_record(place: str, first: int, run: Run) -> None:
    """Nor is it an evaluation, whether or not the agent comes in the middle of its fetch."""
    _, ask = run("fetched", place)
    assert ask("SELECT min(step) AS first FROM python.torch_trace") == [{"first": first}]
    assert ask("SELECT count(*) AS n FROM python.evaluations") == [{"n": 0}]
    rows = ask("SELECT step, data_wait_s > 0 AS waits FROM python.steps WHERE duration IS NOT NULL")
    assert [row["step"] for row in rows] == [*range(first, 6)]
    assert all(row["waits"] for row in rows)


@pytest.mark.parametrize(("place", "calls"), [("patience over", 4), ("loader", 0)])
def test_an_optimizer_of_another_kind_is_waited_for_only_so_long(
    place: str, calls: int, run: Run
) -> None:
    """When no optimizer step comes within the patience, the next root call begins the record."""
    _, ask = run("other_optimizer", place)
    rows = ask("SELECT count(*) AS n FROM python.torch_trace WHERE depth = 0 AND module = 'Net'"
               " AND stage = 'forward'")  # fmt: skip
    assert rows == [{"n": calls}]


def test_global_hooks_of_the_user_do_not_see_ours_come(run: Run) -> None:
    """Torch is not disturbed while it walks over its hooks, and ours are there afterwards."""
    target, ask = run("hooked", "any")
    assert len(losses(target)) == 6
    rows = ask("SELECT count(*) > 0 AS some FROM python.torch_trace WHERE stage = 'optimizer'")
    assert rows == [{"some": True}]


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["whole", "broken"])
def test_a_compiled_model_is_not_compiled_again(graph: str, run: Run) -> None:
    """Neither coming nor going makes torch.compile run its backend, or break a graph."""
    target, _ = run("compiled", graph)
    told = dict(line.split(" ", 1) for line in target.output.splitlines() if " {" in line)
    assert set(told) == {"before", "with", "after"}
    assert told["with"] == told["before"]
    assert told["after"] == told["before"]
    assert int(told["before"].split()[0]) > 0


def test_code_sent_at_once_waits_for_a_safe_point(run: Run) -> None:
    """Before the record has begun the agent knows as well that the training moves."""
    target, _ = run("asked_at_once", "any")
    assert "ran at safe point" in target.output


def test_torch_in_the_middle_of_its_import_is_waited_for(run: Run) -> None:
    """An agent that comes while torch is being imported records once it is there."""
    _, ask = run("importing", "any")
    rows = ask("SELECT count(*) AS n FROM python.torch_trace WHERE module = 'Net' AND depth = 0"
               " AND stage = 'forward'")  # fmt: skip
    assert rows == [{"n": 1}]


def test_children_forked_while_the_agent_comes_are_whole(run: Run) -> None:
    """A child is never born in the middle of an import of ours, nor with half an agent."""
    target, _ = run("forking", "any")
    assert "children {0}" in target.output
