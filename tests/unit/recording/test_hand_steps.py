"""When backward passes whose gradients no optimizer of torch has used are steps by hand."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch

from probing.agent.sources.steps.ends.hand_steps import HandSteps

pytestmark = pytest.mark.torch
MANY = 100


def train(hand: HandSteps, root: torch.nn.Module, during: Callable[[], None]) -> int:
    """How many steps are told while many passes are made, in which something is done."""
    told = 0
    for _ in range(MANY):
        told += hand.has_passed and hand.has_ended()
        hand.pass_begins(root, has_optimizer=True)
        during()
        hand.pass_ended(root, creates_graph=False)
        root.zero_grad()
    return told


def test_passes_that_leave_no_gradient_are_no_steps() -> None:
    """As those that sample from an energy-based model, before each step of its optimizer."""
    hand, root = HandSteps(), torch.nn.Linear(1, 1)
    for _ in range(3):
        assert train(hand, root, lambda: None) == 0
        hand.optimizer_stepped()


def test_after_an_optimizer_has_stepped_no_number_of_passes_shows_that_it_is_unused() -> None:
    """Gradients of single samples are taken away behind each pass: only writes show a step."""
    hand, root = HandSteps(), torch.nn.Linear(1, 1)

    def sample() -> None:
        root(torch.ones(1, 1)).sum().backward()

    def write() -> None:
        sample()
        with torch.no_grad():
            root.weight -= 0.1

    hand.optimizer_stepped()
    assert train(hand, root, sample) == 0
    assert train(hand, root, write) > MANY / 2


def test_an_optimizer_that_never_steps_is_unused_after_many_passes() -> None:
    """Writes through ``parameter.data`` leave no other trace."""
    hand, root = HandSteps(), torch.nn.Linear(1, 1)

    def write() -> None:
        root(torch.ones(1, 1)).sum().backward()
        root.weight.data -= 0.1

    assert 0 < train(hand, root, write) < MANY / 2


class Uncalled(torch.nn.Module):
    """One of which only a method is called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.bias = torch.nn.Parameter(torch.ones(2))

    def loss(self) -> torch.Tensor:
        """What it is trained by."""
        return (self.weight * self.bias).sum()


def test_parameters_of_a_model_that_is_not_called_have_no_weak_reference() -> None:
    """Nor are its steps told otherwise than those of tensors that no module holds."""
    model, alone = Uncalled(), torch.ones(2, requires_grad=True)
    hand = HandSteps()
    for trained, loss in (([*model.parameters()], model.loss), ([alone], alone.sum)):
        for _ in range(2):
            assert not hand.has_ended()
            hand.meet_leaves([begun := loss()])
            hand.pass_begins(None, has_optimizer=False)
            begun.backward()
            hand.pass_ended(None, creates_graph=False)
            assert not any(weakref.getweakrefs(one) for one in model.parameters())
        with torch.no_grad():
            for one in trained:
                one.sub_(0.1)
        assert hand.has_ended()
