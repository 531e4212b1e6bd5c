"""The backward pass of modules: torch's own gradients, and rows where they belong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import probing
from probing.ring import native
from tests.harness.targets import Target

pytestmark = pytest.mark.torch

Ask = Callable[[str], list[dict[str, Any]]]
LAYERS = {"first": 1, "act": 1, "second": 1}
KINDS: dict[str, dict[str, int]] = {
    "in_place": LAYERS,
    "shared": {"layer": 2},
    "reentrant": {"layers": 1, **{f"layers.{name}": 1 for name in LAYERS}},
    "recomputed": {"layers": 1, **{f"layers.{name}": 1 for name in LAYERS}},
    "frozen": {"1": 1, **{f"1.{name}": 1 for name in LAYERS}},
    "retained": dict.fromkeys(LAYERS, 2),
    "several_losses": dict.fromkeys(LAYERS, 2),
    "twice": dict.fromkeys(LAYERS, 2),
    "many_outputs": {"rnn": 1, "split": 1},
    "deep_inputs": {"0": 1, "0.cell": 1, "1": 1, "1.cell": 1},
    "in_parallel": {"Layers": 1, **LAYERS},
    "watched": LAYERS,
    "odd_names": {"?": 1, **{f"?.{name}": 1 for name in LAYERS}},
}
WHOLE = {"retained": 2, "several_losses": 2, "twice": 2}


@pytest.fixture
def ran(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Any, Ask]]:
    """Runs one kind; returns when modules slept, and whom to ask for the record."""

    def run(kind: str, **settings: str) -> tuple[Any, Ask]:
        target = program("backward", kind, PROBING="1", **settings)
        target.wait_for_output("ready")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        process = probing.connect(target.pid)
        assert process.status().problems == ()
        printed = [line for line in target.output.splitlines() if line.startswith("[")]
        return json.loads(printed[0]), lambda sql: process.query(sql).to_pylist()

    return run


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("user_hooks", "1"),
        ("compiled", "1"),
        ("compiled_backward", "1"),
        ("compiled_backward", "0"),
        ("in_a_hook", "1"),
        ("in_a_hook", "0"),
        ("beside_a_pass", "1"),
        ("beside_a_pass", "0"),
    ],
)
def test_gradients_are_those_of_torch(
    kind: str, way: str, ran: Callable[..., tuple[Any, Ask]]
) -> None:
    """The program itself compares them bit for bit."""
    _, ask = ran(kind, PROBING_NATIVE=way)
    rows = ask("SELECT count(*) AS n FROM python.torch_trace WHERE stage = 'backward'")
    assert rows[0]["n"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_has_one_row(kind: str, ran: Callable[[str], tuple[Any, Ask]]) -> None:
    """Gradients bit-equal, as many rows as passes through each module, all complete and nested."""
    _, ask = ran(kind)
    rows = ask(
        "SELECT step, module, start_ns, start_ns + duration_ns AS end_ns, depth, failed"
        " FROM python.torch_trace WHERE stage = 'backward' ORDER BY seq"
    )
    assert {row["failed"] for row in rows} == {False}
    last = [row for row in rows if row["step"] == 2]
    whole = [row for row in last if row["module"] not in KINDS[kind]]
    assert len(whole) == WHOLE.get(kind, 1)
    counts = Counter(row["module"] for row in last if row["module"] in KINDS[kind])
    assert dict(counts) == KINDS[kind]
    for row in last:
        around = [
            w for w in whole if w["start_ns"] <= row["start_ns"] and row["end_ns"] <= w["end_ns"]
        ]
        assert len(around) == 1


@pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python")
@pytest.mark.parametrize(
    "kind",
    [
        *("tree", "shared", "several_losses", "deep_inputs"),
        *(
            pytest.param(kind, marks=pytest.mark.nightly)
            for kind in (*KINDS, "user_hooks", "compiled", "in_a_hook", "beside_a_pass")
            if kind not in {"shared", "several_losses", "deep_inputs"}
        ),
    ],
)
def test_both_ways_write_the_same_rows(kind: str, ran: Callable[..., tuple[Any, Ask]]) -> None:
    """In C and in Python the same passes begin, in the same order, and end in the same one."""
    found = []
    for way in ("1", "0"):
        _, ask = ran(kind, PROBING_NATIVE=way)
        rows = ask(
            "SELECT module, class, root, depth, recomputed, training, failed,"
            " rank() OVER (ORDER BY start_ns) AS begun,"
            " rank() OVER (ORDER BY start_ns + duration_ns) AS ended FROM python.torch_trace"
            " WHERE stage = 'backward' AND step = 2 ORDER BY seq"
        )
        found.append(rows)
    assert len(found[0]) > 1
    assert found[0] == found[1]


def test_time_is_given_to_the_module_that_takes_it(ran: Callable[[str], tuple[Any, Ask]]) -> None:
    """A module that sleeps in its backward pass does so within its row, and its parents' only."""
    slept, ask = ran("tree")
    rows = ask(
        "SELECT module, start_ns, start_ns + duration_ns AS end_ns FROM python.torch_trace"
        " WHERE stage = 'backward' AND step = 2"
    )
    naps = slept[-7:]
    assert sorted(name for name, _, _ in naps) == sorted(
        ["first", "both.left", "both.right", "again.0", "again.0", "inner.0.0", "last"]
    )
    again = sorted((r["start_ns"], r["end_ns"]) for r in rows if r["module"] == "again")
    assert len(again) == 2
    assert again[0][1] <= again[1][0]
    for name, start, end in naps:
        middle = (start + end) // 2
        within = {r["module"] for r in rows if r["start_ns"] <= middle <= r["end_ns"]}
        parents = {name.rsplit(".", n)[0] for n in range(name.count(".") + 1)}
        assert within == {"Tree", *parents}, name
