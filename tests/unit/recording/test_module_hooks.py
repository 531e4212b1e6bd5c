"""Models that are pickled or copied while hooks of ours are on them."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from torch import equal, manual_seed, nn, no_grad, ones, randn

from probing.agent.sources.actions.bypass import CallLook
from probing.agent.sources.calls.observation import Observation
from probing.agent.sources.leaks.hook_counts import hooks_on, is_ours
from probing.agent.sources.numbers.nonfinite.finite_hooks import Hooks
from probing.agent.sources.numbers.nonfinite.numerics import NumericsWatch

pytestmark = pytest.mark.torch

Begin = Callable[[Any, list[str]], Callable[[], None]]


def _watch(model: Any, told: list[str]) -> Callable[[], None]:
    objects = SimpleNamespace(
        roots=SimpleNamespace(alive=lambda: [model]),
        models=SimpleNamespace(root_text=lambda _root: "model"),
    )
    recording: Any = SimpleNamespace(objects=objects)
    watcher: Any = SimpleNamespace(
        entered=lambda *_: told.append("entered"), left=lambda *_: told.append("left")
    )
    hooks = Hooks(recording, watcher)
    hooks.put_on()
    return hooks.take_off


def _look_at_calls(model: Any, told: list[str]) -> Callable[[], None]:
    look = CallLook(list(model))
    look.begin()

    def end() -> None:
        told.extend("seen" for _ in look.calls)
        look.end()

    return end


def _observe(model: Any, told: list[str]) -> Callable[[], None]:
    recording: Any = SimpleNamespace(
        objects=SimpleNamespace(model=None), looks=SimpleNamespace(modules=None)
    )
    look: Any = Observation(recording)
    look._note = lambda *_: told.append("noted")
    look.root_called(model, 1)

    def end() -> None:
        look.root_left(model, failed=True)

    return end


@pytest.mark.parametrize("begin", [_watch, _look_at_calls, _observe])
def test_a_copy_has_a_hook_that_does_nothing(begin: Begin) -> None:
    """It knows nothing of probing, and who looks at the model is not told of its calls."""
    model, told, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), list[str](), ones(1, 2)
    end = begin(model, told)
    assert any(is_ours(hook) for _, hooks in hooks_on(model[0]) for hook in hooks.values())
    pickled = pickle.dumps(model)
    assert b"probing" not in pickled
    for copied in (pickle.loads(pickled), copy.deepcopy(model)):
        copied(x)
        assert pickle.dumps(copied)
    assert not told
    model(x)
    end()
    assert told
    assert not list(hooks_on(model[0]))


def test_a_validation_computes_the_same_with_hooks_on() -> None:
    """An encoder's layers take the path of evaluation, and their padding is computed alike."""
    manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    x, padding, told = randn(2, 5, 16), ones(2, 5).cumsum(1) > 3, list[str]()

    def validated() -> Any:
        model.eval()
        with no_grad():
            result = model[0](x, src_key_padding_mask=padding)
        model.train()
        return result

    before = validated()
    end = _watch(model, told)
    model(x)
    assert len(told) > 2 * len(list(model[0].layers))  # type: ignore[arg-type]
    during = validated()
    end()
    assert equal(before, during)
    model(x)
    assert not any(list(hooks_on(module)) for module in model.modules())


def test_torch_says_nothing_of_a_tensor_that_is_pickled() -> None:
    """The hook on its gradient is not meant to be pickled along, and torch knows that."""
    tensor, watch = ones(1, requires_grad=True), NumericsWatch.__new__(NumericsWatch)
    call: Any = None
    tensor.register_hook(watch._gradient_hook(call, "x", None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(tensor)) == 1
