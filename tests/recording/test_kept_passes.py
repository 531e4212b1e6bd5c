"""What a gradient is made of as an optimizer uses it, however it was set to zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch


def leave(_: Any) -> None:
    """The gradient stays as it is."""


def drop(parameter: Any) -> None:
    """As `zero_grad` does by default."""
    parameter.grad = None


def wipe(parameter: Any) -> None:
    """As `zero_grad(set_to_none=False)` does."""
    parameter.grad.zero_()


def wipe_data(parameter: Any) -> None:
    """As scripts of old do: torch counts no change of the gradient."""
    parameter.grad.data.zero_()


@pytest.mark.parametrize(
    ("zero", "passes", "expected"),
    [
        (leave, 1, [(1, 1, None), (1, 1, True), (1, 1, True)]),
        (leave, 2, [(2, 2, None), (2, 2, True), (2, 2, True)]),
        (drop, 1, [(1, 1, None), (1, 1, False), (1, 1, False)]),
        (wipe, 2, [(2, 2, None), (2, 2, False), (2, 2, False)]),
        (wipe_data, 1, [(1, 1, None), (1, 1, False), (1, 1, False)]),
        (wipe_data, 2, [(2, 2, None), (2, 2, False), (2, 2, False)]),
    ],
)
def test_what_was_used_before_is_told_where_it_is_still_there(
    zero: Callable[[Any], None], passes: int, expected: list[tuple[int, int, bool | None]]
) -> None:
    """Passes of something else between two steps, which leave the gradient alone, do not count."""
    import torch

    from probing.agent.sources.numbers.kept_passes import KeptPasses

    kept, found = KeptPasses(), []
    own, other = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    for _ in expected:
        zero(own) if own.grad is not None else None
        for parameter in (other, *[own] * passes, other):
            kept.begins([own, other])
            (parameter * 2).sum().backward()
            kept.passed([own, other])
        found.append(kept.take(own, own.grad))
        kept.clear()
    assert [tuple(one) if one else None for one in found] == expected


def test_a_gradient_that_was_put_there_is_not_told() -> None:
    """One that the script replaced after its passes is of unknown origin."""
    import torch

    from probing.agent.sources.numbers.kept_passes import KeptPasses

    kept, parameter = KeptPasses(), torch.nn.Parameter(torch.ones(3))
    (parameter * 2).sum().backward()
    kept.passed([parameter])
    parameter.grad = torch.zeros(3)
    assert kept.take(parameter, parameter.grad) is None


@pytest.mark.parametrize(
    ("zero", "expected"), [(leave, True), (drop, False), (wipe, False), (wipe_data, False)]
)
def test_what_another_optimizer_let_accumulate_is_older(
    zero: Callable[[Any], None], *, expected: bool
) -> None:
    """A critic has gradients of the generator's pass in it, unless they are set to zero."""
    import torch

    from probing.agent.sources.numbers.kept_passes import KeptPasses

    kept, found = KeptPasses(), []
    critic, generator = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    for _ in range(3):
        for used, loss in ((critic, critic * 2), (generator, critic * generator)):
            zero(critic) if used is critic and critic.grad is not None else None
            kept.begins([critic, generator])
            loss.sum().backward()
            kept.passed([critic, generator])
            found.append(kept.take(used, used.grad))
            kept.clear()
    assert [counted and counted.has_older for counted in found[::2]] == [None, expected, expected]


def test_a_step_that_had_begun_is_not_told() -> None:
    """Of the passes before it was asked nothing is known; of the next step's all is."""
    import torch

    from probing.agent.sources.numbers.kept_passes import KeptPasses

    kept, parameter, found = KeptPasses(), torch.nn.Parameter(torch.ones(3)), []
    kept.knows_step = False
    for _ in range(2):
        (parameter * 2).sum().backward()
        kept.passed([parameter])
        found.append(kept.take(parameter, parameter.grad))
        kept.clear()
    assert found == [None, (1, 1, True)]
