"""Values that are legal and rare: what reads them in the training thread never raises."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from probing.agent.sources.calls.call_shapes import read_tensors
from probing.agent.sources.data.shapes import size_of
from probing.agent.sources.numbers.nonfinite.finite import tensors_in
from probing.agent.sources.numbers.number import read_number, share_of
from probing.agent.sources.numbers.pass_gradients import gradients_of_pass
from probing.agent.sources.shared.versions import version_of
from probing.agent.sources.steps.ends.carried_gradients import CarriedGradients
from probing.agent.sources.steps.ends.hand_steps import HandSteps, leaves_of
from probing.agent.sources.steps.optimizer_facts import learning_rate_of, steps_of
from probing.ring.format import NULL_FLOAT
from tests.harness.accelerators import NoAccelerator

pytestmark = pytest.mark.torch


def test_a_nested_tensor_has_no_size() -> None:
    """The older kind of them raises where it is asked for its shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)])
    assert size_of((nested,), {}) == (None, None, None)


def test_a_pass_may_begin_and_end_at_edges_of_the_graph() -> None:
    """`torch.autograd.grad` takes a `GradientEdge` for a tensor, and for what it goes to."""
    edge_of = torch.autograd.graph.get_gradient_edge
    weight = torch.ones(3, requires_grad=True)
    double = weight * 2
    loss = edge_of((weight * double).sum())
    assert [id(leaf) for leaf in leaves_of([loss, None])] == [id(weight)]
    carried = CarriedGradients()
    carried.called(torch.nn.Linear(1, 1))
    assert not carried.carries_on([loss], [None])
    assert not carried.is_sum_of_all([loss])
    asked = (edge_of(weight), double, edge_of(double))
    made = gradients_of_pass(((loss,), (None,), False, False, asked), (4.0, 1.0, 1.0))
    assert [(id(leaf), gradient) for leaf, gradient in made.pairs] == [(id(weight), 4.0)]
    weight.grad = torch.ones(3)
    for inputs in ((), asked[:1]):
        made = gradients_of_pass(((loss,), (None,), False, False, inputs), ())
        assert [id(leaf) for leaf, _ in made.pairs] == [id(weight)]


def test_a_learned_divisor_is_no_share() -> None:
    """A trained temperature is passed over without a word, and what else divides is seen."""
    none = NoAccelerator()
    temperature = torch.tensor(2.0, requires_grad=True)
    loss = torch.ones(3, requires_grad=True).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares = [
            share_of(divided.grad_fn, none)
            for divided in (loss / temperature, loss / temperature / 4, loss / 4 / temperature)
        ]
    assert [share and share.read() for share in shares] == [None, 0.25, 0.25]


def test_an_error_that_was_summed_is_the_part_that_its_elements_are() -> None:
    """Of those of all micro-batches, by which it was divided; a mean is divided by their number."""
    none, x = NoAccelerator(), torch.ones(3, 2, requires_grad=True)
    for loss in (torch.nn.functional.mse_loss, torch.nn.functional.smooth_l1_loss):
        shares = [
            share_of((loss(x, torch.zeros(3, 2), reduction=how) / 24).grad_fn, none)
            for how in ("sum", "mean")
        ]
        assert [share and share.read() for share in shares] == [0.25, 1 / 24]


def test_what_cannot_be_read_is_not_looked_at() -> None:
    """A nested tensor has no sum, and one inside of `vmap` stands for many."""
    plain = torch.ones(2)
    seen: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([plain, plain])

    def look(x: Any) -> Any:
        seen.append(len(tensors_in(x)))
        return x.sum()

    torch.vmap(look)(torch.ones(2, 3))
    torch.func.grad(look)(plain)
    assert seen == [0, 1]
    assert tensors_in([nested, plain]) == [("1", plain)]


def test_a_jagged_tensor_has_no_shape_of_its_call() -> None:
    """One of its sizes is no number."""
    jagged = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged)
    told = read_tensors([jagged, torch.ones(2)], torch)
    assert (told.named, told.bytes) == ((("1", (2,)),), None)


@pytest.mark.parametrize(
    ("lr", "told"),
    [
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor([0.1, 0.2]), None),
        (torch.tensor(1j), None),
        (10**400, None),
        ("0.1", None),
    ],
)
def test_a_rate_that_is_no_number_is_none(lr: object, told: float | None) -> None:
    """An optimizer may have one for each parameter; a trained one is read without a word."""
    optimizer: Any = SimpleNamespace(param_groups=[{"lr": lr}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = learning_rate_of(optimizer)
    assert found == told or (told is None and found is NULL_FLOAT)
    assert learning_rate_of(SimpleNamespace(param_groups=[])) is NULL_FLOAT


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"step": torch.tensor(3.0)}, 3),
        ({"step": torch.ones(2)}, None),
        ({"step": torch.tensor(torch.nan)}, None),
        ([3], None),
    ],
)
def test_a_count_that_is_no_number_is_none(state: object, told: int | None) -> None:
    """What an optimizer keeps for a parameter is its own."""
    optimizer: Any = SimpleNamespace(param_groups=[{"params": ["w"]}], state={"w": state})
    assert steps_of(optimizer) == told


def test_a_model_made_in_inference_mode_counts_no_writes() -> None:
    """As a frozen encoder, called before what is trained by hand."""
    with torch.inference_mode():
        encoder = torch.nn.Linear(1, 1)
    assert version_of(encoder.weight) == 0
    hand = HandSteps()
    for _ in range(20):
        hand.pass_begins(encoder, has_optimizer=True)
        hand.pass_ended(encoder, creates_graph=False)


def test_a_step_by_hand_ends_by_no_pass_once_the_script_marks_steps() -> None:
    """Gradients of `torch.autograd.grad`, which the script adds up itself, leave no other trace."""
    hand, root = HandSteps(), torch.nn.Linear(1, 1)
    told = []
    for _ in range(2):
        hand.pass_begins(root, has_optimizer=False)
        hand.pass_ended(root, creates_graph=False)
        told.append(hand.has_ended())
        hand.step_marked()
    assert told == [True, False]


def test_a_weight_that_was_computed_is_not_asked_for_its_gradient() -> None:
    """Torch warns of that; where learning to learn has put one, it is among the parameters."""
    model: Any = torch.nn.Linear(1, 1)
    fast: Any = torch.nn.Linear(1, 1)
    for name, parameter in model.named_parameters():
        fast._parameters[name] = parameter * 1
    steps = HandSteps()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for root in (fast, model):
            root(torch.ones(1, 1)).sum().backward()
            steps.pass_begins(root, has_optimizer=False)
            steps.pass_ended(root, creates_graph=False)
    assert [seen.parameter.find() for seen in steps._seen] == [model.weight, model.bias]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_number_that_torch_does_not_read_is_none() -> None:
    """Not every layout has a way to it, nor has a batch of `vmap`."""
    none = NoAccelerator()
    assert read_number(torch.ones(1, 1).to_sparse_csr(), none) is None
    seen = []

    def read(x: Any) -> Any:
        seen.append(read_number(x.sum(), none))
        return x

    torch.vmap(read)(torch.ones(2, 3))
    assert seen == [None]
