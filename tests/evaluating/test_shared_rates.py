"""A rate that stands in several places: one tensor of several groups, or a group of two optimizers.

What is changed is changed once, whichever place it is reached by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing.agent.sources.actions.learning_rate import LearningRate  # noqa: E402
from probing.agent.sources.actions.targets.chosen import Chosen  # noqa: E402
from probing.agent.sources.shared.events import Events  # noqa: E402
from probing.agent.sources.shared.objects import Objects  # noqa: E402
from probing.messages.about.act import Lr  # noqa: E402

pytestmark = pytest.mark.torch

sched = torch.optim.lr_scheduler
MAKERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda o: None,
    "StepLR": lambda o: sched.StepLR(o, 100),
    "CosineAnnealingLR": lambda o: sched.CosineAnnealingLR(o, 1000),
}


class FakeRecording:
    """Takes looks, and shows nobody anything."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.events = Events()


class FakeScene:
    """Some optimizers, and the schedulers of each."""

    def __init__(self, optimizers: list[Any], schedulers: list[Any]) -> None:
        self.hooks: list[Any] = []
        self.recording = FakeRecording()
        self._optimizers = optimizers
        self._schedulers = schedulers

    def chosen(self, wanted: str | None) -> Chosen:
        """All of them."""
        return Chosen(self._optimizers, ())

    def refuse_alone(self, what: str) -> None:
        """There is one rank."""

    def name_of(self, optimizer: Any) -> str:
        """Its place."""
        return str(self._optimizers.index(optimizer))

    def listed(self, optimizers: list[Any]) -> str:
        """Their places."""
        return ", ".join(map(self.name_of, optimizers))

    def schedulers(self, optimizer: Any) -> list[Any]:
        """Its own."""
        return [one for one in self._schedulers if one.optimizer is optimizer]


def _made(rate: Any) -> tuple[Any, list[Any]]:
    """An optimizer of two groups, and their parameters."""
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    return torch.optim.SGD([{"params": [p]} for p in parameters], lr=rate), parameters


def _step(optimizer: Any, parameters: list[Any]) -> list[float]:
    """One step; how far each parameter has moved."""
    before = [float(p.detach()) for p in parameters]
    for parameter in parameters:
        parameter.grad = torch.ones(1)
    optimizer.step()
    return [old - float(p.detach()) for old, p in zip(before, parameters, strict=True)]


def _rates(*optimizers: Any) -> list[float]:
    return [float(group["lr"]) for o in optimizers for group in o.param_groups]


def _act(asked: Lr, optimizers: list[Any], schedulers: list[Any]) -> Any:
    action, scene = LearningRate(asked), FakeScene(optimizers, schedulers)
    action.prepare(scene)  # type: ignore[arg-type]
    return action.apply(scene)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MAKERS)
def test_a_tensor_that_is_the_rate_of_all_groups_is_scaled_once(name: str) -> None:
    """All groups are told, and undoing gives the rate back to the bit."""
    optimizer, parameters = _made(torch.tensor(1.0))
    scheduler = MAKERS[name](optimizer)
    applied = _act(Lr(scale=0.5), [optimizer], [] if scheduler is None else [scheduler])
    (told,) = [change for change in applied.changes if change.what.startswith("lr of")]
    assert (told.what, told.before, told.after) == ("lr of groups 0, 1", "1", "0.5")
    assert _rates(optimizer) == [0.5, 0.5]
    assert _step(optimizer, parameters) == [0.5, 0.5]
    if scheduler is not None:
        scheduler.step()
        assert _rates(optimizer) == pytest.approx([0.5, 0.5], rel=1e-5)
    undone = applied.undo()
    assert _rates(optimizer) == pytest.approx([1.0, 1.0], rel=1e-5)
    assert undone.overwritten == ()


def test_a_tensor_that_is_the_rate_of_two_optimizers_is_scaled_once() -> None:
    """And taken back once, which is no overwriting by the script."""
    rate = torch.tensor(1.0)
    optimizers = [_made(rate)[0] for _ in range(2)]
    applied = _act(Lr(scale=0.5), optimizers, [])
    assert _rates(*optimizers) == [0.5] * 4
    undone = applied.undo()
    assert _rates(*optimizers) == [1.0] * 4
    assert undone.overwritten == ()


def test_a_held_tensor_is_the_scripts_again_after_each_step() -> None:
    """However many groups share it, and steps have been made."""
    optimizer, parameters = _made(torch.tensor(1.0))
    applied = _act(Lr(scale=0.5, hold=True), [optimizer], [])
    for _ in range(3):
        assert _step(optimizer, parameters) == [0.5, 0.5]
        assert _rates(optimizer) == [1.0, 1.0]
    applied.undo()
    assert _step(optimizer, parameters) == [1.0, 1.0]


class Around(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
    """An optimizer around another one, whose groups it shares, as Lookahead."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.param_groups, {"lr": 0.1})
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self, closure: Any = None) -> None:
        """The other one's."""
        self.inner.step()


@pytest.mark.parametrize("rate", [1.0, torch.tensor(1.0)], ids=["number", "tensor"])
def test_a_held_rate_is_scaled_once_where_one_optimizer_steps_in_another(rate: Any) -> None:
    """By the outer step or by the inner one alone; the rate that is recorded is that, too."""
    inner, parameters = _made(rate)
    around = Around(inner)
    action, scene = LearningRate(Lr(scale=0.5, hold=True)), FakeScene([around, inner], [])
    action.prepare(scene)  # type: ignore[arg-type]
    action.apply(scene)  # type: ignore[arg-type]
    for stepping in (around, inner, around):
        assert _step(stepping, parameters) == [0.5, 0.5]
        assert _rates(inner) == [1.0, 1.0]
    assert list(scene.recording.objects.held_lr.values()) == [0.5, 0.5]
