"""A loss that compares each prediction with each target, seen from the graph alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import probing
from probing.agent.sources.numbers.loss_graphs.broadcast import broadcast_of
from probing.diagnosis.arming import sample_gradients
from probing.messages.broadcasts import broadcast_in, broadcast_note
from tests.harness.targets import DEADLINE_S, Target

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Using a target size"),
]
_N = 16
_Loss = Callable[[Any, Any], Any]


def _pinball(prediction: Any, target: Any) -> Any:
    error = target - prediction
    return (torch.maximum(0.5 * error, -0.5 * error) + 0.2 * error**2).mean()


def _pairs(prediction: Any, target: Any) -> Any:
    return ((prediction.squeeze(-1)[:, None] - target[None]) ** 2).mean()


def _ranking(prediction: Any, _: Any) -> Any:
    return (prediction - prediction.squeeze(-1)).relu().mean()


def _transposed(prediction: Any, target: Any) -> Any:
    return (prediction.T - target[:, None]).abs().mean()


def _centred(prediction: Any, target: Any) -> Any:
    return ((prediction - prediction.detach().mean()).squeeze(-1) - target).abs().mean()


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(_pinball, id="own arithmetic"),
        pytest.param(lambda p, t: (p - t).pow(2).mean(), id="squares"),
        pytest.param(lambda p, t: (p.squeeze(-1) - t[:, None]).abs().sum(), id="target is longer"),
        pytest.param(torch.nn.functional.mse_loss, id="mse"),
        pytest.param(torch.nn.functional.smooth_l1_loss, id="smooth l1"),
        pytest.param(torch.nn.functional.l1_loss, id="l1"),
        pytest.param(lambda p, t: 0.1 * (p * p).mean() + (p - t).pow(2).mean(), id="one of two"),
    ],
)
def test_all_pairs_are_seen(loss: _Loss) -> None:
    """Whichever of both has the axis too many."""
    found = broadcast_of(loss(_predict(_N), torch.randn(_N)))
    assert found is not None
    assert (found.given in {(_N,), (_N, 1)}, found.whole) == (True, (_N, _N))


@pytest.mark.parametrize(
    ("loss", "number"),
    [
        pytest.param(lambda p, t: (p.squeeze(-1) - t).pow(2).mean(), _N, id="alike"),
        pytest.param(_pinball, 1, id="a batch of one"),
        pytest.param(_pairs, _N, id="pairs on purpose"),
        pytest.param(_ranking, _N, id="predictions with each other"),
        pytest.param(_transposed, _N, id="transposed on purpose"),
        pytest.param(_centred, _N, id="less their mean"),
        pytest.param(lambda p, t: (p * torch.ones(_N, _N)).mean(), _N, id="a row of weights"),
        pytest.param(lambda p, t: (p - 0.5).abs().mean(), _N, id="a number"),
    ],
)
def test_what_is_meant_is_not(loss: _Loss, number: int) -> None:
    """Equal sizes, a batch of one, and pairs that the script lays out itself."""
    assert broadcast_of(loss(_predict(number), torch.randn(number))) is None


def test_a_loss_without_a_graph_has_none() -> None:
    """One that has no gradient, and one that is a parameter itself."""
    assert broadcast_of(torch.ones(())) is None
    assert broadcast_of(torch.ones((), requires_grad=True)) is None


def test_the_sentence_is_understood() -> None:
    """Among others, and by its shapes."""
    notes = ("3 gradients were left out", broadcast_note((64, 1), (64, 64)))
    assert broadcast_in(notes) == ("[64, 1]", "[64, 64]")
    assert broadcast_in(notes[:1]) is None


@pytest.fixture
def target(program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch) -> Target:
    """A training whose loss is its own."""
    found = program("own_loss")
    monkeypatch.setenv("PROBING_HOME", str(found.home))
    found.wait_for_step(5)
    return found


def test_gradients_tell_of_it(target: Target) -> None:
    """Who looks at the gradients of a live training is told so."""
    watch = sample_gradients(probing.connect(target.pid), 2, timeout_s=DEADLINE_S)
    assert broadcast_in(watch.armed.notes) == ("[8, 1]", "[8, 8]")


def _predict(number: int) -> Any:
    """Predictions of a model with one output, as `(number, 1)`."""
    return torch.nn.Linear(4, 1)(torch.randn(number, 4))
