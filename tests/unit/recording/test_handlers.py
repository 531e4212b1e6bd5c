"""What a signal's handler raises in the midst of ours, told from faults of ours."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from probing.agent.sources.accelerator import cuda, marks as device_marks
from probing.agent.sources.calls import call_shapes
from probing.agent.sources.collectives import groups, rows
from probing.agent.sources.memory.host_figures import HostFiles
from probing.agent.sources.model import tensor_facts
from probing.agent.sources.numbers import number
from probing.agent.sources.shared.versions import version_of
from probing.agent.sources.steps import marks, optimizer_facts, optimizer_groups, trackers
from probing.safety import handlers
from probing.safety.guard import Guard

pytestmark = pytest.mark.anypython


class Late(Exception):
    """A time limit's exception."""


def plain(_signal: int, _frame: object) -> None:
    """A handler as most are."""
    raise Late


def once(number: int, _frame: object) -> None:
    """One that takes itself off first."""
    signal.signal(number, signal.SIG_DFL)
    deeper()


def deeper() -> None:
    """What a handler calls."""
    raise Late


class Limit:
    """One that knows more."""

    def method(self, _signal: int, _frame: object) -> None:
        """One that is bound."""
        raise Late

    __call__ = method


@functools.wraps(plain)
def wrapped(*args: object, **kwargs: object) -> None:
    """One behind a decorator."""
    plain(*args, **kwargs)  # type: ignore[arg-type]


def chained(number: int, frame: Any) -> None:
    """One that calls the one before it."""
    plain(number, frame)


HANDLERS: dict[str, Callable[..., None]] = {
    "plain": plain,
    "once": once,
    "bound": Limit().method,
    "callable": Limit(),
    "partial": functools.partial(lambda _more, _signal, _frame: deeper(), "more"),
    "wrapped": wrapped,
    "chained": chained,
}


class TooLate(RuntimeError, TimeoutError):
    """Like what torch, and what the kernel refuses."""


def too_late(_signal: int, _frame: object) -> None:
    """A handler that raises it."""
    raise TooLate


class Interrupting:
    """A tensor, or what else of torch's, in whose every attribute a signal comes."""

    _files = MappingProxyType({"statm": 0})
    is_cpu = True
    device = SimpleNamespace(type="cpu")
    dtype = SimpleNamespace(is_complex=False)

    def __getattr__(self, name: str) -> object:
        interrupted()
        raise AttributeError(name)

    def _refused(self, _what: str, _error: Exception) -> None:
        """Notes what was refused."""

    def is_completed(self) -> bool:
        """Whether the work is."""
        return True


class Single(Interrupting):
    """One that has a single number, and where the signal comes as that is read."""

    def numel(self) -> int:
        """How many."""
        return 1


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    """Put back what handled the signal."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


def interrupted() -> None:
    """Something of ours that a signal comes into."""
    signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_handlers_exception_is_the_programs(kind: str) -> None:
    """It reaches the program, and is no fault, whatever the handler is."""
    signal.signal(signal.SIGALRM, HANDLERS[kind])
    guard = Guard("source", lambda: None)
    with pytest.raises(Late):
        guard.run(interrupted)
    assert guard.problem is None


def test_a_fault_beside_a_handler_is_one() -> None:
    """What was given another frame is no handler, nor what of ours was given its caller's."""
    guard, scope = Guard("source", lambda: None), {"plain": plain}
    code = compile("def ours(number, frame): deeper()", handlers.__file__, "exec")
    exec(code, globals(), scope)

    def call(name: str, frame: object = None) -> None:
        scope[name](signal.SIGALRM, frame or sys._getframe())

    guard.run(call, "plain", sys._getframe())
    guard.run(call, "ours")
    assert guard.faults == 2
    with pytest.raises(Late):
        guard.run(call, "plain")  # as a signal would


def made(**facts: object) -> Any:
    """A thing with attributes."""
    return SimpleNamespace(**facts)


def made_single() -> Any:
    """A tensor with a single number."""
    return Single()


NARROW: dict[str, Callable[[Any], object]] = {
    "what the kernel tells": lambda it: HostFiles._read(it, "statm", 1),
    "what torch refuses": cuda._noted("nothing")(lambda _: interrupted()),
    "a mark": lambda it: device_marks.EventMark(it, device_marks.Lane(0), []).is_here(),
    "a time": lambda it: device_marks.Seconds(made(event=it), made(event=it)).value(),
    "a figure": lambda it: marks.Marks._number(it, 1.0),
    "a scalar": trackers._is_scalar,
    "a learning rate": optimizer_facts._number,
    "a beta": optimizer_groups._number,
    "a loss": lambda it: number.read_number(made_single(), it),
    "a version": version_of,
    "shapes": lambda it: call_shapes.read_tensors(it, sys.modules["torch"]),
    "sizes": lambda it: tensor_facts.sizes_of([made_single()]),
    "a layout": tensor_facts.layout_of,
    "a backend's count": groups._begun_in,
    "a backend's timeout": groups._timeout_of,
    "a work": lambda it: rows._is_over(it, made(is_on_host=True)),
    "a work's failure": lambda it: rows._failure_of(it, made(is_on_host=True)),
}


@pytest.mark.parametrize("place", NARROW)
def test_it_is_so_where_only_some_exceptions_are_expected(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `TimeoutError` is an `OSError`, too: not what the kernel, or torch, has refused."""
    torch: Any = ModuleType("torch")
    torch.Tensor = Single if place == "a loss" else Interrupting
    torch.nn = SimpleNamespace(Parameter=Interrupting)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(device_marks, "is_capturing", lambda: False)
    monkeypatch.setattr(os, "pread", lambda *_: interrupted())
    signal.signal(signal.SIGALRM, too_late)
    with pytest.raises(TooLate):
        NARROW[place](Interrupting())


def test_it_keeps_nothing_of_the_step_alive() -> None:
    """What is passed on goes with what its frames refer to, without the garbage collection."""

    class Activation:
        pass

    def step() -> weakref.ref[Activation]:
        kept = Activation()
        held = weakref.ref(kept)
        try:
            Guard("source", lambda: None).run(interrupted)
        except Late:
            return held
        raise AssertionError

    signal.signal(signal.SIGALRM, plain)
    gc.disable()
    try:
        assert step()() is None
    finally:
        gc.enable()


def test_the_programs_objects_are_not_asked() -> None:
    """An argument with a `__class__` of its own is not looked into, whatever that would raise."""

    class Asked:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise ZeroDivisionError

    def fault(_first: object, _second: object) -> None:
        raise Late

    guard = Guard("source", lambda: None)
    guard.run(fault, Asked(), None)
    assert guard.faults == 1
    assert "Late" in guard.last
