"""A loss that is given what it does not expect, seen from the graph alone."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from probing.agent.sources.numbers.loss_graphs.inputs import loss_input_of
from probing.messages.loss_inputs import SCORES, SIGMOID, SOFTMAX, LossInput, loss_input_in

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.checkpoint")
F = torch.nn.functional
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides"),
]
_CASES, _CLASSES = 8, 5
_Loss = Callable[[Any, Any], Any]
_CROSS, _BINARY = "cross_entropy", "binary_cross_entropy_with_logits"


class _Own(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """A function of the script's own, of which nothing is known."""

    @staticmethod
    def forward(ctx: Any, given: Any) -> Any:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        return given[0]


class _DDPSink(_Own):
    """What DistributedDataParallel puts behind the results of a model with unused parameters."""


def _soft(scores: Any) -> Any:
    return scores.softmax(-1)


def _by_hand(scores: Any) -> Any:
    powers = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def _in_parts(scores: Any, labels: Any) -> Any:
    """Steps of a recurrent model, whose results are put together."""
    parts = torch.stack([_soft(scores), _soft(2 * scores)], 1)
    return F.cross_entropy(parts.flatten(0, 1), labels.repeat_interleave(2))


def _focal(scores: Any, labels: Any) -> Any:
    each = F.cross_entropy(_soft(scores), labels, reduction="none")
    return ((1 - (-each).exp().detach()) ** 2 * each).mean()


def _mutual(scores: Any, _: Any) -> Any:
    """Two students learn from each other, and the teacher's answers have gradients."""
    return F.kl_div(_soft(scores), _soft(2 * scores), reduction="batchmean")


def _masked(scores: Any, labels: Any) -> Any:
    return F.cross_entropy(_soft(scores)[labels > 1].float(), labels[labels > 1]) / 4


def _distilled(scores: Any, labels: Any) -> Any:
    soft = F.kl_div(_soft(scores / 2), _answers(), reduction="batchmean") * 4
    return 0.5 * F.cross_entropy(scores, labels) + 0.5 * soft


def _answers() -> Any:
    return torch.randn(_CASES, _CLASSES).softmax(-1)


def _ones(_: Any) -> Any:
    return torch.ones(_CASES, _CLASSES)


@pytest.mark.parametrize(
    ("loss", "name", "maker"),
    [
        pytest.param(lambda s, y: F.cross_entropy(_soft(s), y), _CROSS, SOFTMAX, id="twice"),
        pytest.param(lambda s, y: F.cross_entropy(_by_hand(s), y), _CROSS, SOFTMAX, id="by hand"),
        pytest.param(
            lambda s, y: F.cross_entropy(s.log_softmax(-1).exp(), y), _CROSS, SOFTMAX, id="exp"
        ),
        pytest.param(
            lambda s, y: F.cross_entropy(_soft(s), y, label_smoothing=0.1),
            _CROSS, SOFTMAX, id="smoothed",
        ),
        pytest.param(
            lambda s, y: F.cross_entropy(_DDPSink.apply(_soft(s)), y), _CROSS, SOFTMAX, id="wrapped"
        ),
        pytest.param(_in_parts, _CROSS, SOFTMAX, id="in parts"),
        pytest.param(_masked, _CROSS, SOFTMAX, id="some of them"),
        pytest.param(_focal, _CROSS, SOFTMAX, id="focal"),
        pytest.param(
            lambda s, _: F.cross_entropy(_soft(s), _answers()), "log_softmax", SOFTMAX, id="soft"
        ),
        pytest.param(lambda s, y: F.cross_entropy(s.sigmoid(), y), _CROSS, SIGMOID, id="sigmoid"),
        pytest.param(
            lambda s, _: F.binary_cross_entropy_with_logits(s.sigmoid(), _ones(s)),
            _BINARY, SIGMOID, id="sigmoid twice",
        ),
        pytest.param(
            lambda s, _: F.binary_cross_entropy_with_logits(_soft(s)[:, 1], torch.ones(_CASES)),
            _BINARY, SOFTMAX, id="one of a softmax",
        ),
        pytest.param(lambda s, y: F.nll_loss(_soft(s), y), "nll_loss", SOFTMAX, id="no log"),
        pytest.param(F.nll_loss, "nll_loss", SCORES, id="neither"),
        pytest.param(
            lambda s, y: F.nll_loss(s.view(_CASES, -1, 1), y[:, None]), "nll_loss", SCORES, id="2d"
        ),
        pytest.param(
            lambda s, _: F.kl_div(_soft(s), _answers(), reduction="batchmean"),
            "kl_div", SOFTMAX, id="divergence",
        ),
        pytest.param(
            lambda s, _: F.kl_div(_soft(s), _answers().log(), log_target=True, reduction="sum"),
            "kl_div", SOFTMAX, id="of logarithms",
        ),
        pytest.param(
            lambda s, _: F.kl_div(_soft(s), _answers(), reduction="none").sum(-1).mean(),
            "kl_div", SOFTMAX, id="summed later",
        ),
        pytest.param(_distilled, "kl_div", SOFTMAX, id="one of two"),
        pytest.param(_mutual, "kl_div", SOFTMAX, id="mutual"),
        pytest.param(lambda s, _: F.kl_div(s, _answers()), "kl_div", SCORES, id="scores"),
    ],
)  # fmt: skip
def test_what_a_loss_does_not_expect_is_seen(loss: _Loss, name: str, maker: str) -> None:
    """Whatever stands between: views, selections, stacks, sums with other losses."""
    found = loss_input_of(loss(*_scored()))
    assert found is not None
    assert (found.loss, found.maker) == (name, maker)
    assert found.classes in {None, _CLASSES}


def _attention(scores: Any, labels: Any) -> Any:
    """A softmax inside of a model, and a router's loss beside that of the predictions."""
    weights = (scores @ scores.T).softmax(-1)
    gate = _soft(scores).mean(0)
    return F.cross_entropy(weights @ scores, labels) + 0.01 * (gate * _answers().mean(0)).sum()


def _mixture(scores: Any, labels: Any) -> Any:
    parts = (
        torch.stack([_soft(scores), _soft(3 * scores)]) * torch.tensor([0.3, 0.7])[:, None, None]
    )
    return F.nll_loss(parts.sum(0).log(), labels)


def _normalized(scores: Any, labels: Any) -> Any:
    return F.nll_loss(scores - scores.logsumexp(-1, keepdim=True), labels)


def _in_two(scores: Any, labels: Any) -> Any:
    """The cross-entropy, as the scripts that save memory compute it."""
    return F.nll_loss(scores, labels) + scores.logsumexp(-1).mean()


def _dice(scores: Any, labels: Any) -> Any:
    given, wanted = _soft(scores), F.one_hot(labels, _CLASSES).float()
    return 1 - 2 * (given * wanted).sum() / (given.sum() + wanted.sum())


def _reward(scores: Any, _: Any) -> Any:
    """What is expected of a policy, without a logarithm."""
    return -(_answers() * _soft(scores)).sum(-1).mean()


def _hinge(scores: Any, labels: Any) -> Any:
    signs = 2.0 * F.one_hot(labels, _CLASSES) - 1
    return (torch.ones(_CASES, _CLASSES) - signs * scores).relu().mean()


def _squares(scores: Any, labels: Any) -> Any:
    return (F.one_hot(labels, _CLASSES) - 0.9 * _soft(scores)).pow(2).mean()


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(F.cross_entropy, id="scores"),
        pytest.param(lambda s, y: F.cross_entropy(s, y, label_smoothing=0.1), id="smoothed"),
        pytest.param(lambda s, _: F.cross_entropy(s, _answers()), id="soft labels"),
        pytest.param(lambda s, y: F.cross_entropy(s.log_softmax(-1), y), id="log twice"),
        pytest.param(lambda s, y: F.cross_entropy(10 * _soft(s), y), id="scaled on purpose"),
        pytest.param(lambda s, y: F.cross_entropy(_Own.apply(_soft(s)), y), id="own function"),
        pytest.param(lambda s, y: F.nll_loss(_Own.apply(s), y), id="scores of its own"),
        pytest.param(lambda s, y: F.nll_loss(_soft(s).clamp_min(1e-6).log(), y), id="log of it"),
        pytest.param(lambda s, y: F.nll_loss(s.log_softmax(-1), y), id="likelihood"),
        pytest.param(_attention, id="attention and router"),
        pytest.param(_mixture, id="mixture"),
        pytest.param(_normalized, id="normalized by hand"),
        pytest.param(_in_two, id="in two parts"),
        pytest.param(
            lambda s, _: F.binary_cross_entropy_with_logits(s, _ones(s)), id="binary, scores"
        ),
        pytest.param(lambda s, _: F.binary_cross_entropy(s.sigmoid(), _ones(s)), id="binary"),
        pytest.param(
            lambda s, _: F.kl_div(s.log_softmax(-1), _answers(), reduction="batchmean"), id="kl"
        ),
        pytest.param(
            lambda s, _: F.kl_div(s.log_softmax(-1), _soft(2 * s), reduction="batchmean"),
            id="mutual",
        ),
        pytest.param(lambda s, _: F.kl_div(_soft(s).log(), _answers()), id="kl, log of it"),
        pytest.param(_dice, id="dice"),
        pytest.param(_reward, id="reward"),
        pytest.param(_hinge, id="hinge"),
        pytest.param(_squares, id="squares"),
        pytest.param(lambda s, y: (1 - _soft(s)[torch.arange(_CASES), y]).mean(), id="share"),
        pytest.param(lambda s, _: (_answers() - _soft(s)).abs().mean(), id="distance"),
    ],
)
def test_what_is_meant_is_not(loss: _Loss) -> None:
    """Scores for logits, logarithms for log-probabilities, and losses of other kinds."""
    assert loss_input_of(loss(*_scored())) is None


def test_what_does_not_show_in_the_graph_is_no_finding() -> None:
    """A loss without a graph has none, and an activation checkpoint may be a single node."""
    scores, labels = _scored()
    found = torch.utils.checkpoint.checkpoint(_soft, scores, use_reentrant=True)
    assert loss_input_of(F.cross_entropy(found, labels)) is None
    assert loss_input_of(torch.ones(())) is None
    assert loss_input_of(torch.ones((), requires_grad=True)) is None


def test_a_look_keeps_no_graph() -> None:
    """What the graph holds goes with it."""
    scores, labels = _scored()
    held = scores.relu()
    loss = F.cross_entropy(_soft(held), labels)
    watched = weakref.ref(held)
    assert loss_input_of(loss) is not None
    del held, loss
    assert watched() is None


def test_a_second_log_softmax_changes_nothing() -> None:
    """So that no finding is made of it: neither the loss nor its gradient is another."""
    scores, labels = _scored()
    once, twice = scores.log_softmax(-1), scores.log_softmax(-1).log_softmax(-1)
    assert torch.allclose(once, twice, atol=1e-6)
    found = [
        torch.autograd.grad(F.nll_loss(one, labels), scores, retain_graph=True)[0]
        for one in (once, twice)
    ]
    assert torch.allclose(*found, atol=1e-6)


@pytest.mark.parametrize(
    "found",
    [LossInput(_CROSS, SOFTMAX, 14), LossInput("nll_loss", SCORES), LossInput(_BINARY, SIGMOID)],
)
def test_the_sentence_is_understood(found: LossInput) -> None:
    """Among others, and with the number of classes where that is known."""
    notes = ("3 gradients were left out", found.sentence())
    assert loss_input_in(notes) == found
    assert loss_input_in(notes[:1]) is None


def _scored() -> tuple[Any, Any]:
    """The scores that a model gives, and labels of all classes."""
    scores = torch.nn.Linear(4, _CLASSES)(torch.randn(_CASES, 4))
    return scores, torch.arange(_CASES) % _CLASSES
