"""Optimizer steps that one rank alone leaves out, found by what the ranks did together."""

from __future__ import annotations

from typing import Any

from probing.diagnosis.doctor.ranks.left_out import left_out

CALLS = 8
Rows = list[dict[str, Any]]


def rank(left: frozenset[int] = frozenset(), *, passes: int = 1, joined: int = 0) -> Rows:
    """A rank that leaves out the steps of some of 40 passes.

    Args:
        passes: How many micro-batches a pass is counted as.
        joined: Of so many passes at the end it only takes part in the collectives.
    """
    rows: Rows = []
    row = None
    for number in range(40):
        if row is None:
            row = {"step": len(rows), "calls": 0, "first": number * CALLS + 1, "micro_batches": 0}
        row["calls"] += CALLS
        row["last"] = (number + 1) * CALLS
        is_shadow = number >= 40 - joined
        row["micro_batches"] += 0 if is_shadow else passes
        if number not in left and not is_shadow:
            rows.append(row)
            row = None
    return rows + ([row] if row is not None else [])


def test_who_leaves_out_a_step_alone_is_named() -> None:
    """With the steps of its own in which that was."""
    assert left_out({0: rank(), 1: rank(frozenset({12, 30}))}) == {1: [12, 29]}
    assert left_out({0: rank(passes=4), 1: rank(frozenset({12}), passes=4)}) == {1: [12]}


def test_who_leaves_out_none_alone_is_not() -> None:
    """All ranks leave it out alike, or one only takes part in the collectives of the others."""
    assert left_out({0: rank(), 1: rank()}) == {}
    assert left_out({n: rank(frozenset({12})) for n in range(2)}) == {}
    assert left_out({0: rank(), 1: rank(joined=5)}) == {}
    assert left_out({0: [], 1: []}) == {}


def test_a_record_that_begins_later_is_compared_from_there() -> None:
    """A rank that was attached to late numbers its steps from there."""
    late = [{**row, "step": row["step"] - 20} for row in rank()[20:]]
    assert left_out({0: late, 1: rank()}) == {}
    assert left_out({0: late, 1: rank(frozenset({30}))}) == {1: [30]}
