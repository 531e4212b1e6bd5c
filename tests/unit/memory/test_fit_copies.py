"""What a step on copies without data may do to the training: nothing."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import tempfile
import threading
import weakref
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from probing.errors import FitRefused

pytestmark = pytest.mark.torch


class Held(dict[str, Any]):
    """A dictionary of a class of its own."""


class Pair(NamedTuple):
    """A tuple with names."""

    left: Any
    right: Any


class Stats:
    """Counts calls."""

    def __init__(self) -> None:
        self.calls = 0


class Slotted:
    """Has no dictionary."""

    __slots__ = ("calls", "unset")

    def __init__(self) -> None:
        self.calls = 0


def new_copies() -> Any:
    """Makes copies without data."""
    pytest.importorskip("torch")
    from probing.agent.sources.fit.fake_copy import FakeCopy
    from probing.agent.sources.fit.fake_step import fake_mode

    return FakeCopy(fake_mode())


@pytest.fixture
def copies() -> Any:
    """The same, for a whole test."""
    return new_copies()


def model_with(**held: object) -> Any:
    """A module that has some things besides its weights."""
    torch: Any = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    vars(model).update(held)
    return model


def test_the_end_of_a_copy_closes_and_frees_nothing(tmp_path: Path) -> None:
    """Files, generators and what has a ``__del__`` stay as they are, and refuse to be used."""
    freed: list[object] = []
    handle = type("Handle", (), {"__del__": lambda self: freed.append(type(self))})()
    with tempfile.NamedTemporaryFile(dir=tmp_path) as spill, Path(spill.name).open("rb") as file:
        steps = (number for number in range(3))
        model = model_with(spill=spill, file=file, handle=handle, parts=[steps])
        uses: list[Callable[[Any], object]] = [
            lambda copied: copied.spill.write(b"1"),
            lambda copied: copied.file.read(),
            lambda copied: copied.handle.number,
            lambda copied: next(copied.parts[0]),
        ]
        for use in uses:
            with pytest.raises(FitRefused, match=r"the step uses .* no copy can be made"):
                use(new_copies().module(model))
        gc.collect()
        assert (Path(spill.name).exists(), spill.closed, file.closed) == (True, False, False)
        assert (next(steps), freed) == (0, [])


def test_modules_and_optimizers_with_an_end_of_their_own_are_refused(copies: Any) -> None:
    """Their ``__del__`` would free what the training has, as that of DeepSpeed's Adam does."""
    torch: Any = pytest.importorskip("torch")
    freed: list[object] = []
    end = {"__del__": lambda self: freed.append(type(self))}
    module = type("Own", (torch.nn.Linear,), end)(2, 2)
    optimizer = type("Native", (torch.optim.Adam,), end)(module.parameters())
    with pytest.raises(FitRefused, match=r"0 \(Own\) lets go of something in its __del__"):
        copies.module(torch.nn.Sequential(module))
    with pytest.raises(FitRefused, match="Native lets go of something in its __del__"):
        copies.optimizer(optimizer, set())
    with pytest.raises(FitRefused, match="Native lets go"):
        copies.any([optimizer])
    gc.collect()
    assert freed == []


def test_a_copy_has_containers_of_its_own(copies: Any) -> None:
    """Whatever class a container has, a tensor that the step puts into it is not the training's."""
    made: dict[str, Any] = {
        "queue": deque([1], maxlen=2),
        "lists": defaultdict(list, a=[1]),
        "counts": Counter("a"),
        "held": Held(a=1),
        "ordered": OrderedDict(a=1),
        "user": UserDict(a=[1]),
        "pair": Pair([1], 2),
        "slotted": Slotted(),
        "bytes": bytearray(b"1"),
    }
    model = model_with(**made)
    copied = copies.module(model)
    for name, value in made.items():
        fresh = getattr(copied, name)
        assert type(fresh) is type(value)
        assert fresh is not value
        assert name == "slotted" or fresh == value
    copied.queue.extend([2, 3])
    copied.lists["b"].append(1)
    copied.pair.left.append(2)
    copied.slotted.calls += 1
    assert list(copied.queue) == [2, 3]
    assert (list(model.queue), list(model.lists)) == ([1], ["a"])
    assert (model.pair.left, model.slotted.calls) == ([1], 0)


def test_ways_back_to_the_training_lead_to_the_copy(copies: Any) -> None:
    """So do methods, functions with variables, references, keys and whatever holds itself."""
    torch: Any = pytest.importorskip("torch")
    seen: list[int] = []
    stats = Stats()
    model = model_with(seen=seen, add=seen.append, note=lambda: seen.append(1), stats=stats)
    model.methods = [Counter().update, weakref.ref(stats), threading.Lock()]
    model.scales = {model.weight: 1.0}
    model.around = [model.scales]
    model.around.append(model.around)
    model.cached = functools.lru_cache(lambda: torch.zeros(1))
    model.rng = random.Random(0)
    model.torch_rng = torch.Generator()
    before = model.rng.getstate(), model.torch_rng.get_state()
    model.methods[2].acquire()
    copied = copies.module(model)
    copied.add(1)
    copied.note()
    copied.methods[1]().calls += 1
    copied.cached()
    copied.rng.random()
    torch.rand(1, generator=copied.torch_rng)
    assert copied.methods[2].acquire(blocking=False)
    assert (copied.seen, seen, stats.calls) == ([1, 1], [], 0)
    assert list(copied.scales) == [copied.weight]
    assert copied.around[1] is copied.around
    assert copied.around[0] is copied.scales
    assert model.cached.cache_info().currsize == 0
    assert model.rng.getstate() == before[0]
    assert bool((model.torch_rng.get_state() == before[1]).all())


def test_what_is_compared_by_identity_and_never_changes_is_shared(copies: Any) -> None:
    """Marks, types, functions and numbers are the training's own; so a model finds them again."""
    torch: Any = pytest.importorskip("torch")
    shared = [
        object(), int, torch.float32, torch.device("cpu"), torch.relu, torch.nn.functional.gelu,
        torch.Size([1]), (1, "a"), random.Random, itertools, 1 << 70, pytest.raises,
    ]  # fmt: skip
    copied = copies.any(shared)
    assert copied is not shared
    assert [new is old for new, old in zip(copied, shared, strict=True)] == [True] * len(shared)


def test_more_objects_than_can_be_copied_are_refused(
    copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond the limit would be the training's own."""
    monkeypatch.setattr(copies, "_left", 50)
    assert len(copies.module(model_with(many=list(range(1000)))).many) == 1000
    with pytest.raises(FitRefused, match="the model holds more than 100,000 objects"):
        copies.module(model_with(many=[[] for _ in range(51)]))


class Batch:
    """What some models are called with: an object around tensors."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def test_an_object_around_tensors_is_found_among_the_arguments() -> None:
    """Its tensors are in no other size, so that a step with them tells of no other batch."""
    torch = pytest.importorskip("torch")
    from probing.agent.sources.fit.plain_copies import object_with

    x = torch.ones(2)
    slotted = Slotted()
    slotted.calls = x
    held = [Batch(x=x), Batch(store=Batch(mapping={"x": [x]})), UserDict(x=x), slotted]
    for one in held:
        found = object_with(torch.Tensor, ((x, [one]), {"y": 1}), torch.nn.Module)
        assert found is one
    around = [x, {"x": (x, None)}, Pair(x, 1), torch.nn.Linear(1, 1), Stats(), lambda: x, torch]
    arguments = (tuple(around), {"a": Batch(net=around[3], word="x")})
    assert object_with(torch.Tensor, arguments, torch.nn.Module) is None
