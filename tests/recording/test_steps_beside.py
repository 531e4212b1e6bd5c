"""The first step of an optimizer of another thread's training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.sources.shared.events import Events
from probing.agent.sources.shared.objects import Objects
from probing.agent.sources.shared.thread_state import ThreadStates
from probing.agent.sources.steps.optimizers import OptimizerSteps

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("is_counted", [True, False])
def test_an_optimizer_is_known_once_it_is_known_whose_it_is(is_counted: bool) -> None:
    """Else those of the counted training would have it among them until it is."""
    torch = pytest.importorskip("torch", reason="these are its hooks")
    threads, objects = ThreadStates(), Objects()
    recording: Any = SimpleNamespace(
        threads=threads,
        objects=objects,
        events=Events(),
        names=SimpleNamespace(intern=lambda _: 1),
        costs=SimpleNamespace(clock=lambda: 0),
        training_thread=threads.state.native_id + (not is_counted),
    )
    known = list[bool]()

    def stepped(optimizer: object, *_: object) -> bool:
        known.append(optimizer in objects.counted_optimizers())
        return False

    progress: Any = SimpleNamespace(optimizer_stepped=stepped)
    boundary: Any = SimpleNamespace(admit_step=lambda _: True)
    steps = OptimizerSteps(recording, progress, boundary)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    steps._step_ends(optimizer, (), {})
    assert known == [is_counted]
    assert objects.counted_optimizers() == [optimizer]
