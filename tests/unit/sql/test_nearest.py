"""Which name is meant by one that was mistyped, and where none is."""

from __future__ import annotations

import pytest

from probing.sql.nearest import nearest
from probing.tables import TABLES

pytestmark = pytest.mark.anypython

_NAMES = [table.name for table in TABLES]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("step", "steps"),
        ("setps", "steps"),
        ("STPES", "steps"),
        ("torch_trce", "torch_trace"),
        ("trace", "backtrace"),
        ("grads", "gradients"),
        ("acts", "actions"),
        ("gradeints", "gradients"),
        ("thread", "threads"),
        ("actoins", "actions"),
        ("colectives", "collectives"),
        ("rewards", None),
        ("episodes", None),
        ("prompts", None),
        ("users", None),
        ("steps", None),
    ],
)
def test_only_a_slip_is_put_right(typed: str, meant: str | None) -> None:
    """A word of the user's own that shares letters with a table is none of them."""
    assert nearest(typed, _NAMES) == meant


def test_the_fewest_slips_win_and_neighbours_that_are_swapped_are_one() -> None:
    """Of several as near the shortest is named."""
    assert nearest("stpe", ["stage", "steps", "step"]) == "step"
    assert nearest("modul", ["module", "model"]) == "model"
    assert nearest("slow-modules", ["slowest-modules"], cutoff=0.5) == "slowest-modules"
