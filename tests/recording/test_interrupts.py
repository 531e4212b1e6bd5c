"""Ctrl-C, which may come at any moment, is the program's; what is recorded after it is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.targets import Target

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("way", "stride"),
    [("0", 11), pytest.param("1", 11, marks=pytest.mark.nightly),
     *(pytest.param(way, 1, marks=pytest.mark.nightly) for way in "01")],
)  # fmt: skip
def test_calls_after_an_interrupt_are_recorded_as_ever(
    way: str, stride: int, program: Callable[..., Target]
) -> None:
    """It is raised at each instruction of ours in turn; the program itself looks at its record."""
    target = program("interrupted", str(stride), PROBING="0", PROBING_NATIVE=way)
    target.wait_for_output("done")
