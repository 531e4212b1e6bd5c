"""Gradients of parameters that another thread may train."""

from __future__ import annotations

import pytest

from probing.agent.sources.shared.gradients import UNKNOWN, gradient_beside

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
