"""What the agent records, seen by a reader in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import probing
from probing.diagnosis.arming import sample_gradients
from probing.errors import ArmRefused
from tests import faults
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch

FEATURES = (
    "inference",
    "training",
    "two_optimizers",
    "checkpointing",
    "exception",
    "compiled",
    "transforms",
    "scripted",
    "captured",
    "data_parallel",
    "threads",
    "many_modules",
    "swapped",
)


@pytest.fixture
def record(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Callable[[str], list[dict[str, Any]]]]:
    """Runs features of torch with the agent, and returns a function that asks for the record."""

    def run(*features: str) -> Callable[[str], list[dict[str, Any]]]:
        target = program("torch_features", *features)
        target.wait_for_output("done")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        process = probing.connect(target.pid)
        assert process.status().problems == ()
        return lambda sql: process.query(sql).to_pylist()

    return run


Record = Callable[..., Callable[[str], list[dict[str, Any]]]]


@pytest.mark.fault("T7")
@pytest.mark.parametrize("feature", FEATURES)
def test_torch_works_as_without_the_agent(
    feature: str, program: Callable[..., Target], fault: faults.Reached
) -> None:
    """Every feature gives bit-equal results, and no source of the agent fails."""
    target = program("torch_features", feature)
    target.wait_for_output("done")
    card = target.folder.read_card()
    assert card is not None
    fault.equals(f"{feature}: bit-equal; problems of the agent", (), card.problems)


def test_inference_counts_calls_of_the_root(record: Record) -> None:
    """Without an optimizer each call of the root module is a step; none has gradients to show."""
    ask = record("inference")
    rows = ask("SELECT step, module, failed FROM python.torch_trace WHERE stage = 'forward'")
    calls = [row["module"] for row in rows if row["step"] == 0]
    assert calls == ["Net", "inner", "inner.first", "inner.act", "shared", "shared"]
    assert {row["step"] for row in rows} == {0, 1, 2}
    assert [r["step"] for r in ask("FROM python.steps WHERE duration IS NOT NULL")] == [0, 1, 2]
    (one,) = probing.list_processes()
    with pytest.raises(ArmRefused, match="each of the last 3 steps on record is a call of a model"):
        sample_gradients(probing.connect(one.pid), 1, timeout_s=DEADLINE_S)


def test_of_calls_that_threads_make_at_once_one_is_a_step(record: Record) -> None:
    """A call that fails is none, and keeps no other thread's from being one."""
    ask = record("inference_at_once")
    steps = ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [(step["step"], step["samples"]) for step in steps] == [(0, 1), (1, 2), (2, 3)]
    assert len({step["thread_id"] for step in steps}) == 3
    assert all(step["forward_s"] <= step["duration"] for step in steps)
    rows = ask("FROM python.torch_trace WHERE stage = 'step' AND duration IS NOT NULL")
    assert [row["thread_id"] for row in rows] == [step["thread_id"] for step in steps]
    (told,) = ask("SELECT note FROM probing.sources WHERE source = 'optimizers'")
    assert told["note"].endswith("; of calls that several threads make at once, one is")


def test_training_counts_optimizer_steps(record: Record) -> None:
    """Micro-batches belong to one step; optimizer and whole steps have rows of their own."""
    ask = record("training")
    rows = ask(
        "SELECT step, stage, module, count(*) AS n FROM python.torch_trace"
        " WHERE duration IS NOT NULL GROUP BY ALL ORDER BY step, stage, module"
    )
    counts = {(row["step"], row["stage"], row["module"]): row["n"] for row in rows}
    for step in range(4):
        assert counts[step, "forward", "Net"] == 2
        assert counts[step, "forward", "inner.first"] == 2
        assert counts[step, "optimizer", "SGD"] == 1
        assert counts[step, "step", "Net"] == 1
    steps = ask("SELECT step, optimizer, duration FROM python.steps ORDER BY step")
    assert [s["optimizer"] for s in steps] == ["SGD"] * 4 + [None]
    assert steps[4]["duration"] is None, "the step in progress is an open row"


def test_alternating_optimizers_make_one_step(record: Record) -> None:
    """Two optimizers that take turns count one step per round, not two."""
    ask = record("two_optimizers")
    rows = ask("SELECT max(step) AS last FROM python.steps WHERE duration IS NOT NULL")
    assert rows == [{"last": 4}]


def test_recomputed_calls_are_marked(record: Record) -> None:
    """Activation checkpointing runs a module twice; the second time is marked."""
    ask = record("checkpointing")
    rows = ask(
        "SELECT recomputed, count(*) AS n FROM python.torch_trace"
        " WHERE module = 'first' AND stage = 'forward' GROUP BY ALL ORDER BY recomputed"
    )
    assert rows == [{"recomputed": False, "n": 1}, {"recomputed": True, "n": 1}]
    # torch ends a recomputation by an exception of its own once it has what it needs.
    assert ask("SELECT module FROM python.torch_trace WHERE failed") == []


def test_an_exception_closes_its_rows(record: Record) -> None:
    """Calls ended by an exception are failed, and the next call starts at depth 0 again."""
    ask = record("exception")
    rows = ask(
        "SELECT module, depth, failed FROM python.torch_trace WHERE stage = 'forward' ORDER BY seq"
    )
    failed = [(row["module"], row["depth"]) for row in rows if row["failed"]]
    assert failed == [("Net", 0), ("inner", 1), ("inner.first", 2)] * 2
    assert [r["depth"] for r in rows if r["module"] == "Net"] == [0, 0, 0]


def test_a_compiled_region_is_one_row(record: Record) -> None:
    """torch.compile makes one graph without a break; only the model has rows, no part of it."""
    ask = record("compiled")
    rows = ask(
        "SELECT module, count(*) AS n FROM python.torch_trace"
        " WHERE stage = 'forward' AND step < 3 GROUP BY ALL"
    )
    assert {row["module"]: row["n"] for row in rows} == {"OptimizedModule": 3, "Net": 3}


def test_threads_keep_their_own_depth(record: Record) -> None:
    """Three threads calling one model never mix their nesting."""
    ask = record("threads")
    rows = ask(
        "SELECT module, depth, count(*) AS n, count(DISTINCT thread_id) AS threads"
        " FROM python.torch_trace WHERE stage = 'forward' GROUP BY ALL ORDER BY depth, module"
    )
    assert rows == [
        {"module": "Net", "depth": 0, "n": 151, "threads": 4},
        {"module": "inner", "depth": 1, "n": 151, "threads": 4},
        {"module": "shared", "depth": 1, "n": 302, "threads": 4},
        {"module": "inner.act", "depth": 2, "n": 151, "threads": 4},
        {"module": "inner.first", "depth": 2, "n": 151, "threads": 4},
    ]


def test_modules_made_in_forward_go_by_their_class(record: Record) -> None:
    """A module that belongs to no root is named by its class."""
    ask = record("many_modules")
    rows = ask("SELECT count(*) AS n FROM python.torch_trace WHERE module = 'Softmax'")
    assert rows == [{"n": 200}]


def test_a_replaced_module_takes_the_name_of_its_place(record: Record) -> None:
    """A module put into a known root later is found and named there."""
    ask = record("swapped")
    rows = ask("SELECT count(*) AS n FROM python.torch_trace WHERE module = 'inner.first'")
    assert rows == [{"n": 2}]


def test_a_model_that_is_traced_amid_a_training_is_traced_as_without_the_agent(
    program: Callable[..., Target],
) -> None:
    """No size of a traced call is read: it is a tensor there, and torch would warn of that."""
    target = program("traced")
    assert target.process.wait(DEADLINE_S) == 0
    assert "TracerWarning" not in target.output
    assert target.output.endswith("aten::linear, aten::relu, prim::GetAttr\n")
