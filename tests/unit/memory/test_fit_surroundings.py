"""What a step on copies reaches beside them, and what of it is put back or refused."""

from __future__ import annotations

import functools
import itertools
import random
import sys
import threading
import weakref
from collections import Counter, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import pytest

from probing.errors import FitRefused, FitTimedOut
from probing.messages.about.fit import FitRequest

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CALLS = 0
SEEN: list[Any] = []
RECORDS: deque[Any] = deque()
STATS: dict[str, list[Any]] = defaultdict(list)
LAST: deque[Any] = deque([1], maxlen=1)
FETCHED = deque([1, 2, 3])
NAMES = {"first"}
STATE = SimpleNamespace(calls=0, counts=Counter())
OUTSIDE = torch.nn.Parameter(torch.ones(2))
BUFFER = torch.ones(2)


@functools.lru_cache(maxsize=4)
def table(length: int) -> Any:
    """What is made once for each length."""
    return torch.zeros(length)


def note(x: Any, around: list[Any] = []) -> None:  # noqa: B006 - it is kept on purpose
    """Put something wherever code can."""
    global CALLS  # noqa: PLW0603 - the same
    CALLS += 1
    SEEN.append(x)
    STATS["x"].append(x)
    LAST.append(x)
    RECORDS.append({"x": x})
    NAMES.add("second")
    STATE.calls += 1
    STATE.counts["x"] += 1
    STATE.last = x
    around.append(x)
    note.last = x  # type: ignore[attr-defined]


def counted(function: Any) -> Any:
    """Count the calls of a function in a variable around it."""
    count = 0

    def call(*args: Any) -> Any:
        nonlocal count
        count += 1
        call.count = count  # type: ignore[attr-defined]
        return function(*args)

    return call


class Model(torch.nn.Module):  # type: ignore[misc]
    """Does in its forward what it is told to."""

    made = 0
    kept: list[Any] = []  # noqa: RUF012 - the same

    def __init__(self, does: Any = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.does = does

    @counted
    def forward(self, x: Any) -> Any:
        """Do it."""
        out = self.layer(x)
        type(self).made += 1
        self.kept.append(out)
        note(out)
        out = out + table(2)
        random.random()
        torch.manual_seed(7)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.rand()
        return out if self.does is None else self.does(out)


def run(model: Any) -> Any:
    """Predict a step of a model."""
    from probing.agent.sources.fit.loss_graph import LossPlan
    from probing.agent.sources.fit.simulation import Simulation
    from probing.agent.sources.fit.step_look import Given, SeenStep

    optimizer = torch.optim.SGD(model.parameters())
    seen = SeenStep(model)
    given = Given((4, 2), torch.float32, torch.device("cpu"), requires_grad=False)
    seen.arguments, seen.optimizers = ((given,), {}), [weakref.ref(optimizer)]
    seen.loss = LossPlan(0, (), None, branches=False)
    return Simulation(seen, lambda: None).run(FitRequest(batch=8))


def state() -> Any:
    """All that `note` and `Model` change, as it can be compared."""
    numpy: Any = sys.modules.get("numpy")
    drawn: Any = numpy.random.get_state() if numpy else ("", torch.zeros(0), 0)
    return [
        CALLS, list(SEEN), {key: list(value) for key, value in STATS.items()}, list(LAST),
        list(RECORDS),
        set(NAMES), STATE.calls, dict(STATE.counts), sorted(vars(STATE)), dict(vars(note)),
        str(note.__defaults__), Model.made, list(Model.kept), dict(vars(Model.forward)),
        [c.cell_contents for c in Model.forward.__closure__ if type(c.cell_contents) is int],
        table.cache_info().currsize, random.getstate(), torch.get_rng_state().tolist(),
        drawn[1].tolist(), drawn[2],
    ]  # fmt: skip


def test_what_the_code_of_a_model_changes_is_put_back() -> None:
    """Variables, classes, functions, caches and the generators of random numbers are as before."""
    model, before = Model(), state()
    now, asked = run(model)
    assert asked.bytes > now.bytes
    assert state() == before


def test_it_is_put_back_where_the_step_is_refused_too() -> None:
    """The refusal comes with what has been reached by then."""
    model = Model(lambda out: out * out.sum().item())
    before = state()
    with pytest.raises(FitRefused, match="reads a number out of a tensor"):
        run(model)
    assert state() == before


def test_a_live_tensor_is_neither_changed_nor_trained() -> None:
    """A parameter of something else would get a gradient without data, and fail the next pass."""
    with pytest.raises(FitRefused, match="the step trains a tensor outside of the model"):
        run(Model(lambda out: out * OUTSIDE))
    version = BUFFER._version
    with pytest.raises(FitRefused, match="the step changes a tensor outside of the model"):
        run(Model(lambda out: out + BUFFER.mul_(out.detach().mean())))
    assert (OUTSIDE.grad, BUFFER._version) == (None, version)

    def reads(out: Any) -> Any:
        with torch.no_grad():
            scale = OUTSIDE.mean() + BUFFER
        return out * scale

    def points(out: Any) -> Any:
        return out * out.data_ptr()

    run(Model(reads))
    with pytest.raises(FitRefused, match="data pointer"):  # else a kernel would get a null pointer
        run(Model(points))


def test_hooks_for_all_modules_are_refused() -> None:
    """They would be called for the modules of the copy."""
    calls = itertools.count()
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: print(next(calls)))
    try:
        with pytest.raises(FitRefused, match="hooks for all modules are registered"):
            run(Model())
    finally:
        hook.remove()
    assert next(calls) == 0


def test_a_tensor_without_data_that_is_left_behind_is_told() -> None:
    """What code finds by no name is not put back, so that it is said."""
    held: Any = sys.modules[__name__]

    def hides(out: Any) -> Any:
        vars(sys.modules["this_is_hidden"])["kept"] = out
        return out

    sys.modules["this_is_hidden"] = held
    try:
        with pytest.raises(FitRefused, match="has left tensors without data in a "):
            run(Model(hides))
    finally:
        vars(held).pop("kept", None)
        del sys.modules["this_is_hidden"]


def test_what_another_thread_hands_over_in_a_deque_is_not_taken_back() -> None:
    """A batch that has been fetched meanwhile would be trained twice, or never."""

    def fetch() -> None:
        FETCHED.append(FETCHED[-1] + 1)
        FETCHED.popleft()

    def waits(out: Any) -> Any:
        fetcher = threading.Thread(target=fetch)
        fetcher.start()
        fetcher.join()
        return out * len(FETCHED)

    run(Model(waits))
    assert FETCHED[0] > 1
    assert list(FETCHED) == [FETCHED[0], FETCHED[0] + 1, FETCHED[0] + 2]


def test_the_look_around_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training is held meanwhile, however much there is to be seen."""
    from probing.agent.sources.fit import surroundings
    from probing.agent.sources.fit.fake_step import fake_mode

    def late() -> None:
        raise FitTimedOut("there is no time left")

    with pytest.raises(FitTimedOut):
        surroundings.Surroundings([Model], late)
    with fake_mode() as mode:
        kept = torch.zeros(2)
    with pytest.raises(FitTimedOut):
        surroundings.left_behind([mode], late)
    del kept
    monkeypatch.setattr(surroundings, "_MOST_ITEMS", 1)
    with pytest.raises(FitRefused, match="names containers of more than 1 items"):
        surroundings.Surroundings([Model], lambda: None)


def test_nothing_is_run_beside_a_training_that_only_stands_still() -> None:
    """It may go on at any moment, and what it does then would be taken back."""
    from probing.agent.on_demand.fitting import Fitting
    from probing.agent.recording.safe_points import SafePoints

    training: Any = SimpleNamespace(safe_points=SafePoints(), is_moving=lambda: False)
    seen: Any = SimpleNamespace(root=lambda: None)
    fitting = Fitting(FitRequest(batch=8, timeout_s=0.1), training, seen, lambda _: None)
    with pytest.raises(FitTimedOut, match="did not reach the end of a step"):
        fitting._predict(None)  # type: ignore[arg-type]
