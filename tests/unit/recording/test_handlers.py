"""What a signal's handler raises in the midst of ours, told from faults of ours."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
