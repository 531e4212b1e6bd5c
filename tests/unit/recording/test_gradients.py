"""Gradients of parameters that another thread may train."""

from __future__ import annotations

from typing import Any

import pytest

from probing.agent.sources.shared.gradients import UNKNOWN, GradientsBeside, gradient_beside

pytestmark = pytest.mark.anypython


class _Parameter:
    """Counts how often its gradient was read."""

    def __init__(self) -> None:
        self.read = 0

    @property
    def grad(self) -> str:
        """As of torch."""
        self.read += 1
        return "a gradient"


def test_none_is_read_while_any_thread_is_in_a_backward_pass() -> None:
    """Autograd may be replacing it without the interpreter lock."""
    parameter = _Parameter()
    assert gradient_beside(parameter, {1}) is UNKNOWN
    assert not parameter.read
    assert gradient_beside(parameter, set()) == "a gradient"


class _Recording:
    """Says which threads pass."""

    def __init__(self, *passing: int, awaits_step: bool = False, sees_passes: bool = True) -> None:
        self.passing = set(passing)
        self.awaits_step = awaits_step
        self.sees_passes = sees_passes


@pytest.mark.parametrize(
    "recording", [_Recording(1), _Recording(awaits_step=True), _Recording(sees_passes=False)]
)
def test_beside_a_training_none_is_read_that_may_be_replaced(recording: Any) -> None:
    """Nor where passes are not seen."""
    parameter = _Parameter()
    assert GradientsBeside(recording, 0.0).of(parameter) is UNKNOWN
    assert not parameter.read


def test_beside_a_training_gradients_are_read_between_passes() -> None:
    """The end of a pass is waited for."""
    recording: Any = _Recording()
    assert GradientsBeside(recording, 0.0).of(_Parameter()) == "a gradient"
