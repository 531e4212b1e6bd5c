"""What stands in for a function of torch passes on whatever arguments that is called with."""

from __future__ import annotations

import ast
import copy
import functools
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

import probing.agent
from probing.agent.recording.first_use import _Wire
from probing.agent.sources.numbers.gradient_norms import GradientNorms
from probing.agent.sources.out_of_memory.step_errors import StepErrors, _cell_of
from probing.agent.sources.shared.objects import Objects
from probing.agent.sources.stand_in import StandIn
from probing.agent.sources.steps.optimizers import OptimizerSteps
from probing.ring.format import FAILED, NULL_INT
from probing.safety.guard import Guard

pytestmark = pytest.mark.torch


class Owner:
    """Stands for one of torch's classes."""

    @staticmethod
    def call(x: int, original: int) -> int:
        """A function that has an argument of any name."""
        return x - original


def test_the_first_call_may_have_an_argument_named_original() -> None:
    """It reaches the function that begins the recording, and that which it stands in for."""
    begun = list[str]()

    def begin() -> None:
        begun.append("begun")
        wire.stop()

    wire = _Wire(Owner, "call", begin)
    wire.start()
    assert Owner.call(3, original=1) == 2
    assert begun == ["begun"]


def test_a_thread_that_comes_as_the_recording_begins_waits_and_is_recorded() -> None:
    """So are the first call itself, and those that had the waiting function before."""
    lock, comes, recorded = threading.RLock(), threading.Event(), list[int]()
    source = StandIn(Owner, "call", lambda original, x, /, **rest: recorded.append(x))
    wanted = Owner.call

    def begin() -> None:
        if threading.current_thread() is other:
            comes.set()
        with lock:
            if not source.is_on and threading.current_thread() is not other:
                other.start()
                assert comes.wait(60), "the other thread has gone past what it should wait for"
                source.start()
                wire.stop()

    wire = _Wire(Owner, "call", begin)
    wire.start()
    held = Owner.call
    other = threading.Thread(target=held, args=(2,), kwargs={"original": 0})
    try:
        Owner.call(1, original=0)
        other.join(60)
        held(3, original=0)
        assert sorted(recorded) == [1, 2, 3]
        assert not wire.remains()
    finally:
        source.stop()
    assert Owner.call is wanted


def test_a_call_in_the_midst_of_the_beginning_goes_to_the_function() -> None:
    """As one of a signal's handler does, in the thread that begins to record."""
    begun, found, wanted = list[str](), list[int](), Owner.call

    def begin() -> None:
        if not begun:
            begun.append("begun")
            found.append(Owner.call(3, original=1))

    wire = _Wire(Owner, "call", begin)
    wire.start()
    try:
        assert Owner.call(5, original=1) == 4
        assert found == [2]
    finally:
        wire.stop()
    assert Owner.call is wanted


def test_what_lies_over_the_function_that_waits_stays_there() -> None:
    """It bears whatever marks ours has, and calls it."""
    called, wanted = list[str](), Owner.call
    wire = _Wire(Owner, "call", lambda: None)
    source = StandIn(Owner, "call", lambda original, /, *args, **rest: original(*args, **rest))
    wire.start()
    beneath = Owner.call

    @functools.wraps(beneath)
    def theirs(*args: int, **rest: int) -> int:
        called.append("theirs")
        return beneath(*args, **rest)

    try:
        Owner.call = theirs
        source.start()
        wire.stop()
        assert (Owner.call(3, original=1), called) == (2, ["theirs"])
    finally:
        Owner.call = wanted


def test_what_stands_in_takes_the_function_by_position_only() -> None:
    """An argument of that name is the program's, in each function that passes keywords on."""
    passing, by_name = 0, list[str]()
    for path in Path(probing.agent.__file__).resolve().parent.rglob("*.py"):
        if "original" not in (text := path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.args.kwarg is not None:
                passing += any(arg.arg == "original" for arg in node.args.posonlyargs)
                if any(arg.arg == "original" for arg in node.args.args):
                    by_name.append(f"{path}:{node.lineno}")
    assert passing > 15
    assert not by_name


@pytest.mark.parametrize("by_name", [False, True])
def test_a_sharded_model_may_be_clipped_by_keywords(*, by_name: bool) -> None:
    """FSDP1's own clipping, called as scripts or as Lightning Fabric calls it."""
    recording: Any = SimpleNamespace(
        costs=SimpleNamespace(clock=lambda: 0, add=lambda *_: None),
        objects=Objects(),
        rows=SimpleNamespace(norm=None, max_norm=None),
        threads=SimpleNamespace(state=SimpleNamespace(native_id=1)),
        training_thread=1,
        step=0,
    )
    norms: Any = GradientNorms.__new__(GradientNorms)
    norms.guard, norms._recording, norms._accelerator = Guard("", lambda: None), recording, None
    norms._apart = None
    model = nn.Linear(2, 2)

    def clip(model: Any, max_norm: float, norm_type: float = 2.0) -> float:
        return 3.0

    given: Any = {"max_norm": 1.5, "norm_type": 2.0} if by_name else {}
    assert norms._around_sharded(clip, model, *([] if by_name else [1.5]), **given) == 3.0
    assert not norms.guard.faults, norms.guard.last
    clip_of_model = recording.objects.clip
    assert (clip_of_model.max_norm, clip_of_model.tensors) == (1.5, 2)


def _hooks_of_optimizers() -> list[Any]:
    """What is ours in torch's lists of hooks while it records."""
    steps: Any = OptimizerSteps.__new__(OptimizerSteps)
    steps._hooks = SimpleNamespace(wait_unused=lambda: True)
    steps._register()
    hooks = [hook for handle in steps._handles for hook in handle.hooks_dict_ref().values()]
    steps._remove()
    return [hook for hook in hooks if getattr(hook, "_steps", None) is steps]


def test_hooks_of_optimizers_are_not_compiled_along() -> None:
    """torch.compile would warn of what it cannot trace in them, which ends some scripts."""
    hooks = _hooks_of_optimizers()
    assert len(hooks) == 2
    calls: list[Any] = [type(hook).__call__ for hook in hooks]
    assert all(call._torchdynamo_disable for call in calls)


class Plain(torch.optim.SGD):
    """An optimizer of a script, with a step of its own."""

    def step(self, closure: Any = None) -> Any:
        """As of torch."""
        return super().step(closure)


def test_a_class_of_an_optimizer_may_be_sent() -> None:
    """What cloudpickle takes along of a script's class: its step, and torch's lists of hooks."""
    optimizer, errors = (
        Plain([torch.ones(1, requires_grad=True)], lr=0.1),
        StepErrors(lambda _: None),
    )
    cell: Any = _cell_of(Plain)
    theirs = cell.cell_contents
    errors.watch(optimizer)
    try:
        assert cell.cell_contents is not theirs
        assert copy.copy(cell.cell_contents) is theirs
    finally:
        errors.stop()
    for hook in _hooks_of_optimizers():
        sent = pickle.dumps(hook)
        assert b"probing" not in sent
        assert pickle.loads(sent)(optimizer, (), {}) is None


class Failing(torch.optim.SGD):
    """One whose step fails, as for want of memory."""

    def step(self, closure: Any = None) -> Any:
        """As of torch."""
        raise MemoryError


def test_a_step_that_failed_is_over() -> None:
    """Its row is closed, and what comes behind it is no part of the optimizer's time."""
    optimizer, closed, left = Failing([torch.ones(1)]), list[Any](), list[int]()
    recording: Any = SimpleNamespace(
        ooms=None,
        rows=SimpleNamespace(phases=SimpleNamespace(leave=left.append)),
        threads=SimpleNamespace(state=SimpleNamespace(native_id=1, optimizing=1)),
        trace=SimpleNamespace(close_row=lambda *row: closed.append(row)),
        training_thread=1,
    )
    steps: Any = OptimizerSteps.__new__(OptimizerSteps)
    steps.guard, steps._recording = Guard("", lambda: None), recording
    steps._open, steps._in_base = {id(optimizer): (1, 7, 0, False)}, {id(optimizer)}
    errors = StepErrors(steps._failed)
    errors.watch(optimizer)
    try:
        for _ in range(2):
            with pytest.raises(MemoryError):
                optimizer.step()
    finally:
        errors.stop()
    assert [row[:2] + row[3:] for row in closed] == [(7, FAILED, NULL_INT)]
    assert closed[0][2] == left[0]
    assert (steps._open, steps._in_base, steps.guard.faults) == ({}, set(), 0)
