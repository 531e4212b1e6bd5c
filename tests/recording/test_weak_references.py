"""No weak reference to a parameter or a gradient is left with the training.

torch refuses to swap a tensor that has one, as `Module.to` swaps those of a sharded model.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import probing
from probing.diagnosis.arming import sample_gradients
from tests.harness.targets import DEADLINE_S, Target

pytestmark = pytest.mark.torch


def test_parameters_and_gradients_have_no_weak_reference(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not between the passes and steps of any way to train, nor while gradients are followed."""
    target = program("weakly_held")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_output("round 4")
    found = sample_gradients(probing.connect(target.pid), 3, timeout_s=DEADLINE_S)
    assert found.armed.done == 3
    assert not {line for line in target.output.splitlines() if line.startswith("found")}
