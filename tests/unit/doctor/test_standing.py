"""Graphs that are kept every so many steps, which a watch of a few steps does not see come."""

from __future__ import annotations

from typing import Any

import pytest

from probing.diagnosis.doctor.rules.memory.standing import standing_graphs
from probing.diagnosis.leaks.series import Trend
from probing.diagnosis.leaks.standing import kept_graphs

from .made import facts, steps

pytestmark = pytest.mark.anypython

MIB = 1 << 20


def _saved(now: int, in_pass: int, module: str = "dec.0", **columns: Any) -> list[dict[str, Any]]:
    """What autograd has saved of one kind, as a step ends and as a backward pass begins."""
    row = {"category": "activations", "module": module, "dtype": "float32", "shape": "96,384",
           "device": "cpu", "bytes": MIB, **columns}  # fmt: skip
    return [
        {**row, "moment": moment, "address": n}
        for moment, count in (("now", now), ("before_backward", now + in_pass))
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("tensors", "times"),
    [
        (_saved(20, 1), 20),
        (_saved(20, 0), 20),
        (_saved(20, 1) + _saved(1, 1, "mu"), 20),
        (_saved(1, 1), None),  # the last loss is a variable of the loop
        (_saved(12, 12), None),  # twelve layers alike, of the last pass
        (_saved(20, 1, category="inputs"), None),
        ([row for row in _saved(20, 1) if row["moment"] == "now"], None),
        ([], None),
    ],
)
def test_a_graph_is_kept_that_is_there_more_often_than_a_pass_makes_it(
    tensors: list[dict[str, Any]], times: int | None
) -> None:
    """One moment tells, however many steps lie between them; what one pass leaves is none."""
    found = kept_graphs(tensors)
    assert (found and found.times) == times
    if found is not None:
        assert found.bytes == 20 * MIB


@pytest.mark.parametrize(("rise", "is_told"), [(30 * MIB, True), (60 * MIB, False)])
def test_graphs_are_told_that_are_half_of_the_growth(rise: int, *, is_told: bool) -> None:
    """With how often they are there, and where; fewer are not what grows."""
    of = facts({"steps": steps(60)}, {"tensors": _saved(20, 1)})
    trend = Trend(kind="staircase", steps=60, slope=1e5, first_step=0, rise=float(rise))
    found = standing_graphs(of, trend)
    assert (found is not None) == is_told
    if found is not None:
        assert found.summary.startswith("autograd graphs are kept alive, those of 20 passes")
        assert "20 times 96 x 384 in dec.0" in found.evidence
