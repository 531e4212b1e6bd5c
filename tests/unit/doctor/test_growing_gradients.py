"""Gradients that grow by orders of magnitude over many steps, and those that only grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .made import facts, signs, steps

pytestmark = pytest.mark.anypython

Value = Callable[[int], float]


def noisy(value: Value) -> Value:
    """A value that is up to twice as large, and as small, from step to step."""
    return lambda step: value(step) * 2.0 ** (((step * 7919) % 21 - 10) / 10)


def said(
    norm: Value | None, count: int = 300, *, every: int = 1, **columns: Any
) -> list[tuple[str, str]]:
    """How sure it is, and in which words, of steps with such norms.

    Args:
        every: The norm is taken in each so manieth step.
    """
    taken = noisy(norm or (lambda _: 1.0))
    columns.setdefault("grad_norm", lambda step: taken(step) if step % every == 0 else None)
    evaluations = columns.pop("evaluations", [])
    made = facts({"steps": steps(count, **columns), "evaluations": evaluations})
    return [
        (one.certainty, " ".join((one.summary, *one.evidence)))
        for one in signs("exploding-gradients", made)
    ]


def grows(decades: float, count: int = 300, begin: int = 0) -> Value:
    """A norm that grows from 1 by so many decades until the end."""
    return lambda step: 10.0 ** (decades * max(0, step - begin) / (count - begin))


def worse(step: int) -> float:
    """A loss that has fallen, and rises again."""
    return 2.0 - 0.01 * min(step, 60) + 0.02 * max(0, step - 60)


@pytest.mark.parametrize(
    ("norm", "count", "every"),
    [
        (grows(3.0), 300, 1),
        (grows(3.5, 3900), 3900, 10),  # taken in each tenth step, as no script asks for it
        (grows(2.8, begin=40), 300, 1),  # not from the start on
        (grows(2.6), 300, 1),
    ],
)
def test_a_norm_that_grows_and_grows_is_told_before_nan_comes(
    norm: Value, count: int, every: int
) -> None:
    """Beside its own middle it never is a hundred times as large, and by its trend it is."""
    ((certainty, words),) = said(norm, count, every=every, loss=worse)
    assert certainty == "likely"
    assert "The gradients grow and grow" in words


def test_it_is_only_possible_where_the_loss_gets_better() -> None:
    """As a loss begins to fall, gradients grow."""
    ((certainty, words),) = said(grows(3.0))
    assert certainty == "possible"
    assert "the loss does not get worse meanwhile" in words


def test_it_is_only_possible_where_no_loss_is_known() -> None:
    """Nothing then tells learning from its opposite."""
    ((certainty, _),) = said(grows(3.0), loss=None)
    assert certainty == "possible"


def test_it_is_only_possible_of_what_is_clipped() -> None:
    """What the optimizer uses is as large as ever."""
    ((certainty, words),) = said(grows(3.0), loss=worse, clipped_norm=0.5)
    assert certainty == "possible"
    assert "the script clips them" in words


def test_it_is_only_possible_of_a_policy() -> None:
    """Its gradients grow with its rewards, and so does its loss."""
    asked = [{"step": n // 2, "start_ns": n, "calls": 1} for n in range(600)]
    ((certainty, words),) = said(grows(3.0), loss=worse, evaluations=asked)
    assert certainty == "possible"
    assert "those of a policy grow, too" in words


@pytest.mark.parametrize(
    "norm",
    [
        lambda _: 1.0,  # noise alone
        lambda s: 100.0 * 0.98**s,  # it is learned
        lambda s: 1e-3 + 5.0 * min(1.0, s / 40),  # a head that is zero at first
        lambda s: 10.0 ** (-6 + 4 * s / 300),  # a plateau is left, and no norm is large
        lambda s: 1.0 + 11.0 * s / 300,  # a curriculum of longer and longer texts
        lambda s: 100.0 if s % 2 else 0.1,  # a generator and its critic
        lambda s: 10.0 ** (2 * abs((s % 100) - 50) / 50),  # rates that go up and down
        lambda s: 1.0 if s < 150 else 30.0,  # another phase
        lambda s: 500.0 if s % 60 == 7 else 1.0,  # bad batches now and then
        lambda s: 10.0 ** (1.5 * s / 300),  # thirty times as large
    ],
)
def test_healthy_gradients_are_not_told(norm: Value) -> None:
    """Whatever the loss does."""
    assert said(norm, loss=worse) == []
    assert said(norm) == []


def test_a_few_steps_tell_nothing() -> None:
    """Forty that have a norm are needed."""
    assert said(grows(4.0, 300), 300, every=10, loss=worse) == []


def test_norms_that_are_all_nothing_tell_nothing() -> None:
    """As where all gradients are zero, or not finite."""
    for norm in (0.0, float("nan"), float("inf"), None):
        assert said(None, grad_norm=norm, loss=worse) == []
