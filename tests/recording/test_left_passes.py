"""Whether a gradient has a backward pass in it that was made for another optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .test_kept_passes import drop, leave, wipe, wipe_data

pytestmark = pytest.mark.torch

Zero = Callable[[Any], None]
Acts = Iterator[tuple[Any, str]]
"""What a script does: a loss to go back from, or a parameter that its optimizer uses."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection in the midst of a look takes nothing of its time."""
    from probing.agent.sources.numbers import left_passes

    monkeypatch.setattr(left_passes, "_LONGEST_S", 60.0)


def played(acts: Callable[[Any, Any], Acts], *, times: int = 3) -> list[str | None]:
    """Who has left something in the critic's gradient, at each step of its optimizer."""
    import torch

    from probing.agent.sources.numbers.left_passes import LeftPasses

    left, found = LeftPasses(), []
    critic, generator = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    groups = {"opt_c": [critic], "opt_g": [generator]}  # that meet, as a weight and its input
    for _ in range(times):
        for given, optimizer in acts(critic, generator):
            if not optimizer:
                loss = given.sum()
                left.begins([loss], groups)
                loss.backward()
                left.passed(groups)
                continue
            left.steps(optimizer)
            by = left.take(given, given.grad)
            found += [by] if optimizer == "opt_c" else []
    return found


def zeroed(parameter: Any, zero: Zero = drop) -> None:
    """Set to zero what there is."""
    if parameter.grad is not None:
        zero(parameter)


@pytest.mark.parametrize(
    ("before", "behind", "expected"),
    [
        (leave, drop, [None, "opt_g", "opt_g"]),
        (leave, wipe, [None, "opt_g", "opt_g"]),
        (drop, leave, [None, None, None]),
        (wipe, leave, [None, None, None]),
        (wipe_data, leave, [None, None, None]),
        (drop, drop, [None, None, None]),
    ],
)
def test_what_the_pass_of_a_generator_leaves_in_its_critic(
    before: Zero, behind: Zero, expected: list[str | None]
) -> None:
    """It is there unless it is set to zero between that pass and the critic's own."""

    def acts(critic: Any, generator: Any) -> Acts:
        zeroed(critic, before)
        yield critic * 2, ""
        yield critic, "opt_c"
        zeroed(critic, behind)
        zeroed(generator)
        yield critic * generator, ""
        yield generator, "opt_g"

    assert played(acts) == expected


def test_several_passes_of_a_critic_of_its_own_are_none_of_others() -> None:
    """Losses of real and made samples, one after the other, and a pass that leaves it alone."""

    def acts(critic: Any, generator: Any) -> Acts:
        zeroed(critic, wipe)
        yield generator * 2, ""
        yield critic * 2, ""
        yield critic * 3, ""
        yield critic, "opt_c"
        critic.requires_grad_(False)
        zeroed(generator)
        yield critic * generator, ""
        yield generator, "opt_g"
        critic.requires_grad_(True)

    assert played(acts) == [None, None, None]


def test_gradients_that_gather_while_another_steps_may_be_meant_to() -> None:
    """A part that is trained at every other step has gradients of all passes."""

    def acts(critic: Any, generator: Any) -> Acts:
        zeroed(critic)
        for _ in range(2):
            zeroed(generator)
            yield critic * generator, ""
            yield generator, "opt_g"
        yield critic, "opt_c"

    assert played(acts) == [None, None, None]


def test_what_is_added_before_anybody_steps_is_one_sum() -> None:
    """Two losses whose passes come before both steps."""

    def acts(critic: Any, generator: Any) -> Acts:
        zeroed(critic)
        zeroed(generator)
        yield critic * generator, ""
        yield critic * 2, ""
        yield generator, "opt_g"
        yield critic, "opt_c"

    assert played(acts) == [None, None, None]


def _plain(size: int) -> Any:
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, size)
    )


def _of_norms(norm: Callable[[Any], Any]) -> Any:
    import torch

    layers = (torch.nn.Linear(4, 4, bias=False) for _ in range(3))
    return torch.nn.Sequential(*map(norm, layers), torch.nn.Tanh())


def _normed(name: str) -> Any:
    import torch

    return _of_norms(getattr(torch.nn.utils.parametrizations, name))


@pytest.mark.parametrize(
    "critic", [lambda: _plain(1), lambda: _normed("spectral_norm"), lambda: _normed("weight_norm")]
)
def test_a_generator_is_behind_its_critic_and_not_before_it(critic: Callable[[], Any]) -> None:
    """Its gradients come through the critic's weights, whatever these are made of."""
    import torch

    from probing.agent.sources.numbers.left_passes import behind

    generator, judge = _plain(4), critic()
    groups = {"opt_g": list(generator.parameters()), "opt_c": list(judge.parameters())}
    inputs = torch.randn(2, 4)
    loss = judge(generator(inputs)).mean() + 0.1 * generator(inputs).square().mean()
    found = behind(groups, [loss])
    assert found is not None
    assert found.get("opt_c") == frozenset({"opt_g"})
    assert not found.get("opt_g")
    found = behind(groups, [judge(generator(inputs).detach()).mean()])
    assert found is not None
    assert not found.get("opt_c")


def test_what_a_head_has_left_in_features_may_be_meant_for_them() -> None:
    """As of a domain that is told apart, before the pass of the features' own loss."""
    import torch

    from probing.agent.sources.numbers.left_passes import LeftPasses

    left, features, head = LeftPasses(), _plain(4), _plain(2)
    groups = {"opt_f": list(features.parameters()), "opt_h": list(head.parameters())}
    inputs = torch.randn(2, 4)
    for loss, name in ((head(features(inputs)).sum(), "opt_h"), (features(inputs).sum(), "opt_f")):
        left.begins([loss], groups)
        loss.backward()
        left.passed(groups)
        left.steps(name)
        found = {left.take(parameter, parameter.grad) for parameter in groups[name]}
        assert found == {None}


class Link:
    """A node of a graph, or the end of one; counts how many are looked at."""

    looks = 0

    def __init__(self, below: Link | None = None) -> None:
        self._below = below

    @property
    def grad_fn(self) -> Link:
        """As of a loss."""
        return self

    @property
    def next_functions(self) -> tuple[tuple[Link, int], ...]:
        """As of a node of torch's."""
        Link.looks += 1
        return () if self._below is None else ((self._below, 0),)


@pytest.mark.parametrize("bound", ["_MOST_NODES", "_LONGEST_S"])
def test_a_graph_that_is_too_large_is_looked_at_once_and_not_to_its_end(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """Nothing is known of its passes then, and those after it begin at once."""
    from probing.agent.sources.numbers import left_passes

    monkeypatch.setattr(left_passes, bound, 0 if bound == "_LONGEST_S" else 10)
    loss, Link.looks = Link(), 0
    for _ in range(1000):
        loss = Link(loss)
    groups: dict[str, list[Any]] = {"opt_c": [], "opt_g": []}
    left = left_passes.LeftPasses()
    assert left_passes.behind(groups, [loss]) is None
    assert Link.looks <= 20
    left.begins([loss], groups)
    looks = Link.looks
    left.begins([loss], groups)
    assert Link.looks == looks
