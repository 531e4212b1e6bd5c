"""Actions that last, each on an optimizer of its own: none ends what another one does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing.agent.sources.actions.clipping import Clipping  # noqa: E402
from probing.agent.sources.actions.learning_rate import LearningRate  # noqa: E402
from probing.agent.sources.actions.ledger import Applied  # noqa: E402
from probing.agent.sources.actions.targets.chosen import Chosen, chosen_of  # noqa: E402
from probing.errors import ActRefused  # noqa: E402
from probing.messages.about.act import Clip, Lr  # noqa: E402

pytestmark = pytest.mark.torch

NAMES = ["gen", "disc"]


class Pair:
    """Two optimizers, and what actions ask of a scene."""

    def __init__(self) -> None:
        self.hooks: list[Any] = []
        self.recording = SimpleNamespace(objects=SimpleNamespace(clip=None, held_lr={}))
        self.parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in NAMES]
        self.optimizers = [torch.optim.SGD([p], lr=1.0) for p in self.parameters]

    def chosen(self, wanted: str | None) -> Chosen:
        """All, or the one that is named."""
        return chosen_of(self.optimizers, NAMES, [], wanted)

    def refuse_alone(self, what: str) -> None:
        """There is one rank."""

    def refuse_sharded(self, what: str, instead: str) -> None:
        """Nothing is sharded."""

    def world_size(self) -> int:
        """One."""
        return 1

    def schedulers(self, optimizer: object) -> list[Any]:
        """None."""
        return []

    def act(self, asked: Clip | Lr) -> Applied:
        """Apply an action at once."""
        action = Clipping(asked) if isinstance(asked, Clip) else LearningRate(asked)
        scene: Any = self
        action.prepare(scene)
        return action.apply(scene)

    def moved(self) -> list[float]:
        """How far a step with gradients of 100 moves the parameter of each."""
        moved = []
        for optimizer, parameter in zip(self.optimizers, self.parameters, strict=True):
            parameter.grad = torch.full((1,), 100.0)
            before = float(parameter.detach())
            optimizer.step()
            moved.append(round(before - float(parameter.detach()), 3))
        return moved


def test_each_optimizer_keeps_its_clipping() -> None:
    """Clipped to norms of their own, one is changed, ended or undone, and the other is as it was.

    One action on both stands over both, and undoing it gives each its own back.
    """
    pair = Pair()
    assert pair.act(Clip(max_norm=1.0, optimizer="gen")).hooks is not None
    second = pair.act(Clip(max_norm=5.0, optimizer="disc"))
    assert (second.changes[0].before, second.changes[0].after) == (None, "5")
    assert pair.moved() == [1.0, 5.0]
    both = pair.act(Clip(max_norm=3.0))
    assert (both.changes[0].before, both.changes[0].after) == ("1, 5", "3")
    assert pair.moved() == [3.0, 3.0]
    assert both.undo is not None
    both.undo()
    assert pair.moved() == [1.0, 5.0]
    ended = pair.act(Clip(optimizer="gen"))
    assert pair.moved() == [100.0, 5.0]
    assert pair.act(Clip(optimizer="gen")).notes == ("nothing was clipped by an action before",)
    assert ended.undo is not None
    ended.undo()
    assert second.undo is not None
    second.undo()
    assert pair.moved() == [1.0, 100.0]
    assert [one.value for one in pair.hooks] == ["1"]


def test_one_optimizer_goes_on_under_what_took_the_other_away() -> None:
    """An action on both is in force still where another one stands over it for one of them."""
    pair = Pair()
    both = pair.act(Clip(max_norm=1.0))
    one = pair.act(Clip(max_norm=5.0, optimizer="disc"))
    assert pair.moved() == [1.0, 5.0]
    assert both.hooks is not None
    assert both.hooks.hangs
    assert one.undo is not None
    one.undo()
    assert pair.moved() == [1.0, 1.0]


def test_each_optimizer_has_its_own_held_rate() -> None:
    """Undone for one, it is held for the other, whose rate cannot be set meanwhile."""
    pair = Pair()
    pair.act(Lr(scale=0.5, hold=True, optimizer="gen"))
    held = pair.act(Lr(scale=0.1, hold=True, optimizer="disc"))
    assert pair.moved() == [50.0, 10.0]
    assert held.undo is not None
    held.undo()
    assert pair.moved() == [50.0, 100.0]
    assert list(pair.recording.objects.held_lr) == [id(pair.optimizers[0])]
    with pytest.raises(ActRefused, match="the rate is held"):
        pair.act(Lr(value=1.0, optimizer="gen"))
