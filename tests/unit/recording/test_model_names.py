"""What models are called: by the script's own variables, which are read and left as they are."""

from __future__ import annotations

import sys
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
from torch import nn

from probing.agent.sources.calls.names.class_names import modules_in, parameters_in
from probing.agent.sources.calls.names.direct_calls import owner_of
from probing.agent.sources.calls.names.module_names import ModuleNames
from probing.agent.sources.model.given_names import ModelNames
from probing.agent.sources.model.variables import variable_of

pytestmark = pytest.mark.torch


def untraced() -> None:
    """Take a debugger's or coverage's mark from the calling function."""
    sys._getframe(1).f_trace = None


class Batch:
    """Stands for what a function lets go of."""


def test_a_model_goes_by_the_variable_of_a_function() -> None:
    """Its name is found, and what else the function has is not kept alive by the look."""

    def name_of(model: nn.Module) -> str | None:
        untraced()
        return variable_of(model)

    def train() -> tuple[str | None, Any]:
        untraced()
        network, batch = nn.Linear(1, 1), Batch()
        seen = weakref.ref(batch)
        name = name_of(network)
        del batch
        return name, seen()

    assert train() == ("network", None)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="from 3.13 on a frame keeps no copy")
def test_what_a_script_was_given_by_locals_stays_as_it_was() -> None:
    """A function that asks for its own variables is passed over."""

    def train() -> tuple[str | None, list[str]]:
        untraced()
        settings = locals()
        network = nn.Linear(1, 1)
        return variable_of(network), list(settings)

    assert train() == (None, [])


def test_a_wrapped_model_goes_by_its_own_variable() -> None:
    """And by that of what is around it, where it has none any more."""

    def train() -> tuple[str, str]:
        untraced()
        network = nn.Linear(1, 1)
        around = nn.DataParallel(network)
        names = ModelNames()
        first = names.name_of(around)
        network = nn.Linear(2, 2)
        other = nn.DataParallel(nn.Linear(1, 1))
        return first, names.name_of(other)

    assert train() == ("network", "other")


def test_who_asks_before_the_script_has_does_not_name_its_model() -> None:
    """A thread of the agent's, where no variable is seen; what has none keeps its first name."""

    def train() -> list[str]:
        untraced()
        names, network, parts = ModelNames(), nn.Linear(1, 1), [nn.Linear(1, 1)]
        for model in (network, *parts):
            asking = threading.Thread(target=names.name_of, args=(model,))
            asking.start()
            asking.join()
        del model, asking
        return [names.name_of(network), names.name_of(parts[0]), names.name_of(network)]

    assert train() == ["network", "Linear 2", "network"]


class Recipe:
    """Holds its model by an attribute that is its own business."""

    def __init__(self) -> None:
        self._model = nn.Linear(1, 1)

    def train(self) -> str | None:
        """Where it would be called."""
        untraced()
        return variable_of(self._model)


def test_a_model_goes_by_the_attribute_that_holds_it() -> None:
    """Of the object whose method runs."""
    assert Recipe().train() == "_model"


class Agent(nn.Module):
    """Is never called itself."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(1, 1)

    def act(self) -> Any:
        """Where its part would be called."""
        untraced()
        return owner_of(self.actor)


def test_a_part_called_by_a_method_belongs_to_the_model_of_that() -> None:
    """Whatever the method's name is; nobody is the owner of a model that is called by itself."""
    agent = Agent()
    assert agent.act() is agent
    assert owner_of(nn.Linear(1, 1)) is None


class CompiledForward:
    """As the class of what torch.jit has compiled or loaded has one."""

    def __get__(self, thing: object, cls: type) -> Any:
        raise AttributeError


class Compiled(nn.Module):
    """Such a module."""

    forward = CompiledForward()


def test_a_variable_may_hold_what_torch_jit_has_compiled() -> None:
    """A teacher, or a network that scores what is made, beside a list whose layers are called."""
    layers = nn.ModuleList([nn.Linear(1, 1)])

    def call(teacher: nn.Module, parts: nn.ModuleList) -> tuple[Any, Any]:
        untraced()
        return owner_of(teacher), owner_of(parts[0])

    assert call(Compiled(), layers) == (None, layers)


class Own(nn.Module):
    """Has something of its own by the names of two methods of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)
        self.last.weight = self.first.weight
        self.again = self.first
        own: Any = self
        own.modules = [self.first, self.last]

    def parameters(self, recurse: bool = True) -> Any:
        """Those that are trained, as a list."""
        return [p for p in super().parameters(recurse) if p.requires_grad]

    def act(self) -> Any:
        """Where a part would be called."""
        untraced()
        return owner_of(self.last)


def test_a_model_may_have_parameters_and_modules_of_its_own() -> None:
    """It has a name and counts as one with parameters, and a part that it calls as its part."""
    model = Own()
    assert list(map(id, parameters_in(model))) == list(map(id, nn.Module.parameters(model)))
    assert list(map(id, modules_in(model))) == list(map(id, nn.Module.modules(model)))
    names: Any = SimpleNamespace(intern=len)
    models: Any = SimpleNamespace(root_text=lambda _root: "model")
    known = ModuleNames(names, models)
    assert known.learn_root(model) in known.with_parameters
    assert model.act() is model


def test_what_is_made_anew_in_each_step_is_looked_for_a_few_times_only() -> None:
    """Losses and the like, which have nothing in them; those that live on are looked for."""
    texts = dict[str, int]()
    looked_for: list[str] = []

    def root_text(module: nn.Module) -> str:
        looked_for.append(type(module).__name__)
        return "one of the script's"

    names: Any = SimpleNamespace(intern=lambda text: texts.setdefault(text, len(texts)))
    models: Any = SimpleNamespace(root_text=root_text)
    known, kept = ModuleNames(names, models), [nn.ReLU() for _ in range(50)]
    for module in kept:
        known.learn_call(module)
    for _ in range(50):
        known.learn_call(nn.MSELoss())
        known.learn_call(nn.Linear(1, 1))
    counts = {kind: looked_for.count(kind) for kind in set(looked_for)}
    assert counts == {"ReLU": 50, "MSELoss": 16, "Linear": 50}
    assert known.root_of(kept[0]) is kept[0]
    assert len(known.known) == len(kept)
