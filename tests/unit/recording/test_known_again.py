"""How parameters and gradients are known again without being kept."""

from __future__ import annotations

import weakref

import pytest

pytest.importorskip("torch")

import torch

from probing.agent.sources.numbers.gradient_norms import clip_of
from probing.agent.sources.shared.versions import as_seen
from probing.agent.sources.steps.optimizer_groups import _clip_of

pytestmark = pytest.mark.torch


def test_another_trainings_parameters_are_not_taken_for_those_clipped_before() -> None:
    """The identities of parameters that are gone are those of new ones."""
    before, now = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(now.parameters(), 0.1)
    group = optimizer.param_groups[0]
    clip = clip_of(list(now.parameters()), 0.25)
    assert clip is not None
    assert _clip_of(optimizer, group, clip) == 0.25
    ends = zip(before.parameters(), now.parameters(), strict=True)
    first, last = (as_seen(old)._replace(identity=id(new)) for old, new in ends)
    del before
    assert _clip_of(optimizer, group, clip._replace(ends=(first, last))) is None


def test_sparse_gradients_are_known_without_a_weak_reference_to_them() -> None:
    """A later one at the same place is told from it."""
    model = torch.nn.Embedding(5, 3, sparse=True)
    model(torch.tensor([1])).sum().backward()
    gradient = model.weight.grad
    assert gradient is not None
    seen = as_seen(gradient)
    assert not weakref.getweakrefs(gradient)
    assert seen.is_of(gradient)
    assert not as_seen(gradient * 2)._replace(identity=id(gradient)).is_of(gradient)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_without_a_storage_are_never_known_again() -> None:
    """Such as gradients in compressed rows."""
    gradient = torch.eye(3).to_sparse_csr()
    assert not as_seen(gradient).is_of(gradient)
