"""Gradients that are asked for while a script may let go of them, which ends a process that reads.

Each of these programs has the moment last at which a parameter points to what is being freed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import probing
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch


def _asked(target: Target, monkeypatch: pytest.MonkeyPatch, step: int) -> Any:
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    target.wait_for_step(step)
    return probing.connect(target.pid)


def _told(process: Any) -> dict[tuple[str, str], bool | None]:
    rows = process.live("parameters").dicts()
    return {(row["model"], row["parameter"]): row["has_gradient"] for row in rows}


def _by_size(process: Any) -> dict[int, bool | None]:
    """Told of parameters by how many numbers they have."""
    return {row["numel"]: row["has_gradient"] for row in process.live("parameters").dicts()}


def _categories(process: Any) -> Counter[str]:
    rows = process.live("tensors", wait_s=DEADLINE_S).dicts()
    return Counter(row["category"] for row in rows if row["moment"] == "now")


def test_none_is_read_while_another_thread_lets_go_of_its_own(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads train a model each: what is told of both is asked for as none lets go."""
    target = program("letting_go_both")
    process = _asked(target, monkeypatch, 4)
    for _ in range(5):
        told = _told(process)
        assert {told["model", name] for name in ("weight", "bias")} <= {True, None}
        assert _categories(process)["parameters"] == 4
    assert target.process.poll() is None


def test_what_another_thread_is_without_for_a_while_is_not_told_as_missing(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gradients are gone at most ends of the other's steps, and come with its next pass."""
    process = _asked(program("gone_for_long"), monkeypatch, 4)
    wait_until(lambda: len(_by_size(process)) == 4, "both models on record")
    for _ in range(5):
        told = _by_size(process)
        assert told[8] is told[2] is True
        assert {told[4], told[1]} <= {True, None}


def test_none_is_read_beside_a_training_that_stands_still_in_the_midst_of_that(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it stands still does not make it safe: it is not known what gradients there are."""
    target = program("hung_letting_go")
    process = _asked(target, monkeypatch, 8)
    assert _told(process) == {("model", "weight"): None, ("model", "bias"): None}
    rows = process.live("tensors", wait_s=DEADLINE_S)
    assert "gradients are not told from other tensors" in rows.note
    assert "gradients" not in {row["category"] for row in rows.dicts()}
    assert target.process.poll() is None


def test_those_of_a_training_that_stands_still_are_known(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As between the cells of a notebook, where no step ends."""
    process = _asked(program("between_cells"), monkeypatch, 8)
    assert _told(process) == {("model", "weight"): True, ("model", "bias"): True}
    assert _categories(process)["gradients"] == 2


def test_the_end_of_a_slow_step_is_waited_for(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of it there may be no gradient yet."""
    process = _asked(program("slow_steps"), monkeypatch, 2)
    told = _told(process)
    assert told == {("model", "layer.weight"): True, ("model", "layer.bias"): True}
