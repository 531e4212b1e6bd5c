"""How `probing hang` compares what ranks have called."""

from __future__ import annotations

import dataclasses

import pytest

from probing.diagnosis.hang import RankEvidence, judge
from tests.unit.ranks.hang_samples import WAITING, call, evidence, history, waiting

pytestmark = pytest.mark.anypython

LATE = history(40)


def with_shapes(shapes: str, *, is_open: bool = False) -> list[RankEvidence]:
    """Three ranks that wait for rank 1, which brought a tensor of another shape once."""
    at = 41 if is_open else 35
    own = call(at, shapes=shapes, is_open=is_open)
    calls = tuple(own if c.seq == at else c for c in (*LATE, call(41)))
    odd = evidence(1, calls, doing=WAITING) if is_open else evidence(1, calls[:-1])
    return [odd, *(waiting(rank) for rank in (0, 2, 3))]


@pytest.mark.parametrize("shapes", ["[8192]", "[128,64]", "[1,64,128]"])
def test_as_many_elements_in_another_shape(shapes: str) -> None:
    """Backends reduce them all the same: it is no mismatch, and the late rank is named."""
    verdict = judge(with_shapes(shapes))
    assert (verdict.kind, [c.rank for c in verdict.causes]) == ("missing", [1]), verdict.headline


def test_a_number_and_a_tensor_of_one() -> None:
    """A flag is `[]` on one rank and `[1]` on another."""
    ranks = with_shapes("[]")
    ranks = [
        dataclasses.replace(e, calls=tuple(
            dataclasses.replace(c, shapes="[1]") if c.seq == 35 and e.rank != 1 else c
            for c in e.calls
        ))
        for e in ranks
    ]  # fmt: skip
    assert judge(ranks).kind == "missing"


@pytest.mark.parametrize("shapes", ["[]", "[8193]", "[64,128];[1]", "[0]"])
@pytest.mark.parametrize("is_open", [False, True])
def test_another_number_of_elements(shapes: str, is_open: bool) -> None:
    """That is a mismatch, in whatever shape, and shown with its shapes."""
    verdict = judge(with_shapes(shapes, is_open=is_open))
    assert (verdict.kind, [c.rank for c in verdict.causes]) == ("mismatch", [1]), verdict.headline
    assert f"all_reduce {shapes} float32" in verdict.headline
