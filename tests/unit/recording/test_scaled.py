"""Losses that were scaled: what is done with them behind that, and what scale is in them then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from probing.agent.sources.numbers.number import share_of
from probing.agent.sources.shared.scaled import Scaled
from tests.harness.accelerators import NoAccelerator

pytestmark = pytest.mark.torch

SCALE, OTHER = torch.tensor(256.0), torch.tensor(2.0)
Scale = Callable[..., Tensor]


class Scaler:
    """Scales losses, and has it noted."""

    def __init__(self) -> None:
        self.noted = Scaled()

    def __call__(self, loss: Tensor, by: Tensor = SCALE) -> Tensor:
        """One of them."""
        result = loss * by
        self.noted.add(result, by)
        return result


def loss(size: int = 3) -> Tensor:
    """One with a graph behind it."""
    return mse_loss(torch.ones(size, requires_grad=True), torch.zeros(size))


def in_place(scale: Scale) -> Tensor:
    """The script changes what it was given."""
    total = scale(loss())
    total /= 4
    total += 0
    return total


def learned() -> Tensor:
    """A weight that is trained."""
    return torch.tensor(0.5, requires_grad=True)


WHOLE: dict[str, Callable[[Scale], Tensor]] = {
    "itself": lambda scale: scale(loss()),
    "divided": lambda scale: scale(loss()) / 4,
    "times": lambda scale: scale(loss()) * 0.25,
    "times, from the left": lambda scale: torch.tensor(0.25) * scale(loss()),
    "by what is learned": lambda scale: learned() * scale(loss()) / learned(),
    "sum": lambda scale: sum([scale(loss()), scale(loss()) / 2], torch.tensor(0.0)),
    "sum of ints": lambda scale: 0 + scale(loss()) + scale(loss()),
    "difference": lambda scale: scale(loss()) - scale(loss()) / 2,
    "weighted": lambda scale: torch.add(scale(loss()), scale(loss()), alpha=3),
    "stacked": lambda scale: torch.stack([scale(loss()), scale(loss())]).mean(),
    "joined": lambda scale: torch.cat([scale(loss()).reshape(1), scale(loss())[None]]).sum(0),
    "one of several": lambda scale: torch.stack([scale(loss()), scale(loss())])[1],
    "of each sample": lambda scale: (
        scale((torch.ones(4, requires_grad=True) * 2).square()).mean() / 2
    ),
    "turned": lambda scale: -(1 - scale(loss())),
    "of another type": lambda scale: scale(loss()).double().clone().squeeze(),
    "in place": in_place,
    "many": lambda scale: sum((scale(loss()) for _ in range(15)), torch.tensor(0.0)),
}
IN_PARTS: dict[str, Callable[[Scale], Tensor]] = {
    "with one that is not": lambda scale: scale(loss()) + loss(),
    "stacked with one": lambda scale: torch.stack([loss(), scale(loss())]).sum() / 2,
    "with a weight": lambda scale: scale(loss()) / 2 + learned(),
    "by another": lambda scale: scale(loss()) + scale(loss(), OTHER),
    "product": lambda scale: scale(loss()) * scale(loss()),
    "more than are looked at": lambda scale: sum(
        (scale(loss()) for _ in range(40)), torch.tensor(0.0)
    ),
}
NOT: dict[str, Callable[[Scale], Tensor]] = {
    "plain": lambda _: loss(),
    "divided": lambda _: loss() / 4,
    "several": lambda _: (loss() + loss() * 0.5) / 2,
    "below something else": lambda scale: scale(loss()).exp() * 0 + loss(),
    "a weight": lambda _: learned(),
}


def looked_at(make: Callable[[Scale], Tensor]) -> tuple[Any, bool]:
    """What is known of a loss, with another one that was scaled beside it."""
    scale = Scaler()
    scale(loss())
    made = make(scale)
    return scale.noted.scale_in((made * 1 if made.grad_fn is None else made).grad_fn)


@pytest.mark.parametrize("way", WHOLE)
def test_a_scale_is_known_whatever_is_done_with_the_loss_behind_it(way: str) -> None:
    """Divided, weighted, or added to others of that scale: it is still in all of it."""
    found, is_whole = looked_at(WHOLE[way])
    assert found is SCALE
    assert is_whole


@pytest.mark.parametrize("way", IN_PARTS)
def test_what_was_scaled_in_parts_has_no_one_scale(way: str) -> None:
    """So that no number is told for it, which would be a wrong one."""
    found, is_whole = looked_at(IN_PARTS[way])
    assert found is SCALE or found is OTHER
    assert not is_whole


@pytest.mark.parametrize("way", NOT)
def test_what_was_not_scaled_is_left_as_it_is(way: str) -> None:
    """Beside others that were."""
    assert looked_at(NOT[way]) == (None, False)


class Sum(torch.autograd.Function):
    """One of the script's own, whose nodes have nearly the name of one of torch's."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        """Not what it is called."""
        return tensor.exp()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Nobody asks."""
        raise AssertionError(ctx, gradients)


def test_operations_of_the_script_are_none_of_torchs() -> None:
    """What they do is not known, so nor is any scale behind them."""
    scale = Scaler()
    node = Sum.apply(scale(loss())).grad_fn
    assert node.name() == "SumBackward"
    assert scale.noted.scale_in(node) == (None, False)


def test_no_graph_lives_longer_for_it() -> None:
    """Nor does a tensor that it has saved; of very many results the oldest are forgotten."""
    scale, wide = Scaler(), torch.ones(1000, requires_grad=True)
    hidden = wide * 2
    seen = weakref.ref(hidden)
    made = scale(hidden.square().sum()) / 2
    del hidden, made
    gc.collect()
    assert seen() is None
    for _ in range(1000):
        scale(loss())
    assert len(scale.noted.scales) <= 64
    with torch.no_grad():
        scale(loss())  # which has no graph


@pytest.mark.parametrize(
    ("make", "share"),
    [
        (lambda scale: scale(loss()), None),
        (lambda scale: scale(loss()) / 4, 0.25),
        (lambda scale: scale(loss() / 4), 0.25),
        (lambda scale: scale(loss() / 4) * 0.5, 0.125),
        (lambda scale: scale(loss() / 2 / 2 / 2) / 2, 0.125),
        (lambda scale: (scale(loss()) + scale(loss())) / 2, 0.5),
        (lambda scale: scale(summed(6)) / 24, 0.25),
        (lambda scale: scale(summed(6) / 24), 0.25),
    ],
)
def test_a_share_has_no_scale_in_it(make: Callable[[Scale], Tensor], share: float | None) -> None:
    """What part of a step's loss it is, divided behind the scale or before."""
    scale, none = Scaler(), NoAccelerator()
    found = share_of(make(scale).grad_fn, none, scale.noted)
    assert (found and found.read()) == share


def summed(count: int) -> Tensor:
    """A cross entropy that was summed over so many tokens."""
    tokens = torch.zeros(count, dtype=torch.long)
    return cross_entropy(torch.ones(count, 5, requires_grad=True), tokens, reduction="sum")
