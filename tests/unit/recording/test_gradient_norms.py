"""Which norms of clipped gradients are that of a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn.utils import clip_grad_norm_

from probing.agent.sources.numbers.gradient_norms import GradientNorms
from probing.agent.sources.shared.events import Events
from probing.agent.sources.shared.objects import Objects
from tests.harness.accelerators import NoAccelerator

pytestmark = pytest.mark.torch


class Step:
    """A step of one optimizer, whose gradients have the norm 5."""

    def __init__(self, recording: Any) -> None:
        self.recording = recording
        self.head, self.frozen = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        self.parameters = [*self.head.parameters(), *self.frozen.parameters()]
        self.optimizer = torch.optim.SGD(self.parameters)
        recording.objects.made.add(self.optimizer)
        self.head.weight.grad = torch.tensor([[0.0, 3.0]])
        self.head.bias.grad = torch.tensor([4.0])

    @property
    def norm(self) -> float | None:
        """What is told of it."""
        norm = self.recording.rows.norm
        return norm and norm.read()


@pytest.fixture
def step() -> Iterator[Step]:
    """One whose norms are looked at."""
    recording: Any = SimpleNamespace(
        events=Events(),
        objects=Objects(),
        rows=SimpleNamespace(norm=None, max_norm=None, took_ns=0),
        threads=SimpleNamespace(state=SimpleNamespace(native_id=1)),
        training_thread=1,
        costs=SimpleNamespace(clock=time.perf_counter_ns, add=lambda *_: None),
        passing=set(),
        step=0,
    )
    norms = GradientNorms(recording, NoAccelerator(), 0.01)
    norms.start()
    yield Step(recording)
    norms.close()
    assert norms.guard.faults == 0


def test_the_norm_of_all_gradients_is_that_of_the_step(step: Step) -> None:
    """Parameters without gradients may be left out, and those of no optimizer be there."""
    clip_grad_norm_(step.head.parameters(), 100.0)
    assert step.norm == 5.0
    step.recording.rows.norm = None
    clip_grad_norm_([*step.parameters, *torch.nn.Linear(1, 1).parameters()], 1.0)
    assert step.norm == 5.0


def test_norms_of_parts_are_not_that_of_the_step(step: Step) -> None:
    """Nor is that of all which is taken behind them."""
    for parameter in step.parameters:
        clip_grad_norm_(parameter, 1.0)
    clip_grad_norm_(step.parameters, 1.0)
    assert step.norm is None
    step.recording.step = 1
    clip_grad_norm_(step.parameters, 100.0)
    assert step.norm == pytest.approx(1.0)


def test_a_norm_of_another_kind_is_not_that_of_the_step(step: Step) -> None:
    """The next step's is, where it is Euclidean."""
    clip_grad_norm_(step.parameters, 100.0, norm_type=float("inf"))
    assert step.norm is None
    step.recording.step = 1
    clip_grad_norm_(step.parameters, 100.0)
    assert step.norm == 5.0


def test_a_few_gradients_may_be_left_out(step: Step) -> None:
    """As that of a temperature of the loss; but not where they are clipped, too."""
    step.frozen.bias.grad = torch.tensor([12.0])
    clip_grad_norm_(step.head.parameters(), 100.0)
    assert step.norm == 5.0
    assert step.recording.rows.max_norm == 100.0
    for number in (1, 2):
        step.recording.step = number
        clip_grad_norm_(step.head.parameters(), 100.0)
        clip_grad_norm_(step.frozen.bias, 100.0)
        assert step.norm is None
    step.recording.step = 4
    clip_grad_norm_(step.head.parameters(), 100.0)
    assert step.norm == 5.0


def test_how_others_gradients_are_clipped_tells_nothing_of_a_step(step: Step) -> None:
    """As a discriminator's by its largest, before those of the generator."""
    discriminator = torch.nn.Linear(2, 1)
    discriminator.weight.grad = torch.ones(1, 2)
    clip_grad_norm_(discriminator.parameters(), 1.0, norm_type=float("inf"))
    assert step.norm is None
    clip_grad_norm_(step.parameters, 100.0)
    assert step.norm == 5.0
