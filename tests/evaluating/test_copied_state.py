"""The copy of a training's state that `act checkpoint --copy-first` writes."""

from __future__ import annotations

import collections
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing.agent.sources.actions.targets.training_state import copied  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_view_that_conjugates_or_negates_is_copied_as_that() -> None:
    """The copy has the numbers that the training had, and what shared memory still does."""
    base = torch.tensor([1 + 2j, 3 - 4j])
    state = {"own": base, "conj": base.conj(), "imag": base.conj().imag, "last": base[1:].conj()}
    taken = copied(state)
    expected = {name: value.clone() for name, value in state.items()}
    base.zero_()  # the training goes on
    for name, value in expected.items():
        assert torch.equal(taken[name], value), name
    assert len({value.untyped_storage().data_ptr() for value in taken.values()}) == 1


def test_a_dict_of_another_kind_is_copied_whole() -> None:
    """With the default of a `defaultdict`, and the versions that a `state_dict` goes by."""
    moving = torch.ones(1)
    counts: Any = collections.defaultdict(list, a=[moving])
    model = torch.nn.BatchNorm1d(1).state_dict()
    taken = copied({"counts": counts, "model": model})
    moving.zero_()
    assert float(taken["counts"]["a"][0]) == 1
    assert taken["counts"]["new"] == []
    assert "new" not in counts
    assert taken["model"]._metadata == model._metadata
    assert list(taken["model"]) == list(model)
