"""Which models optimizers belong to."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import cast

import pytest

pytest.importorskip("torch")

import torch

from probing.agent.sources.shared.met import Met
from probing.agent.sources.shared.objects import Objects
from probing.agent.sources.shared.recording import Recording
from probing.agent.sources.steps.ends.members import Members

pytestmark = pytest.mark.torch


def test_a_new_optimizer_is_of_the_model_as_it_is_now() -> None:
    """A model's head may be replaced between two trainings, and only the new one be trained."""
    objects = Objects()
    members = Members(cast("Recording", SimpleNamespace(objects=objects)))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    objects.made.add(first)
    members.root_called(model, (1, 1, 1))
    assert members.is_trained(model)
    assert members.roots_of(first, members.known(first)) == [(model, (1, 1, 1))]
    replaced = model[1]  # so that none has its identity
    objects.made = Met()
    model[1] = torch.nn.Linear(2, 3)
    second = torch.optim.SGD(model[1].parameters(), lr=0.1)
    objects.made.add(second)
    assert members.is_trained(model)
    assert members.roots_of(second, members.known(second)) == [(model, (1, 1, 1))]
    del replaced


def test_a_model_is_called_where_one_that_is_gone_has_been() -> None:
    """It may have the same address: it is not taken for that, and comes after those before it."""
    members = Members(cast("Recording", SimpleNamespace(objects=Objects())))
    gone, other, model = (torch.nn.Linear(2, 2) for _ in range(3))
    members.called[id(model)] = (weakref.ref(gone), (1, 1, 1))
    del gone
    members.root_called(other, (2, 2, 2))
    members.root_called(model, (3, 3, 3))
    members.root_called(other, (2, 2, 2))
    assert [(of(), ids) for of, ids in members.called.values()] == [
        (other, (2, 2, 2)),
        (model, (3, 3, 3)),
    ]
