"""Short texts of the values of a process, without running any of their code."""

from __future__ import annotations

import collections
import enum
import gc
import sys
import threading
import weakref
from types import FrameType
from typing import Any

import pytest

from probing.agent.sources.numbers.values import describe, read_locals
from probing.agent.sources.stacks.look import take_backtrace
from probing.messages.common import Local


class Touched(BaseException):
    """Raised by whatever of a value's own code runs; nothing catches it by accident."""


class Touchy:  # noqa: PLW1641 - it has a hash, which is forbidden
    """A value all of whose code is forbidden."""

    def __repr__(self) -> str:
        raise Touched

    def __getattribute__(self, name: str) -> Any:
        raise Touched

    __str__ = __len__ = __iter__ = __bool__ = __hash__ = __repr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise Touched


class TouchyDict(dict[Any, Any]):
    """A dictionary all of whose own code is forbidden."""

    def __len__(self) -> int:
        raise Touched

    __repr__ = __iter__ = items = keys = __getitem__ = __len__  # type: ignore[assignment]


class TouchyClass(type):
    """A class whose class answers nothing."""

    def __getattribute__(cls, name: str) -> Any:
        raise Touched


class TouchyText(str):
    """A text that does not want to be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise Touched

    __len__ = __getitem__ = __str__ = __repr__  # type: ignore[assignment]


class Color(enum.IntEnum):
    """A number with a name."""

    RED = 1


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024

TEXTS: dict[str, tuple[object, str]] = {
    "nothing": (None, "None"),
    "number": (3, "3"),
    "bool": (True, "True"),
    "float": (0.1, "0.1"),
    "enum": (Color.RED, "Color(1)"),
    "huge": (1 << 100_000, "<int of 100,001 bits>"),
    "text": ("a\nb", r"'a\nb'"),
    "long text": ("x" * 10**6, "'" + "x" * 116 + "..."),
    "bytes": (b"\0\1", r"b'\x00\x01'"),
    "list": ([1, "a", None], "[1, 'a', None]"),
    "long list": (list(range(10**5)), "[0, 1, 2, 3, 4, ... 100,000 in all]"),
    "empty": ((), "()"),
    "set": ({1}, "{1}"),
    "frozen set": (frozenset({1}), "frozenset {1}"),
    "deque": (collections.deque([1, 2]), "deque [1, 2]"),
    "named tuple": (Pair(1, 2), "Pair (1, 2)"),
    "dict": ({"a": 1, 2: [1, 2]}, "{'a': 1, 2: <list of 2>}"),
    "object": (Touchy(), "<tests.unit.vocabulary.test_values.Touchy>"),
    "objects": ([Touchy()], "[<tests.unit.vocabulary.test_values.Touchy>]"),
    "as value": ({"k": Touchy()}, "{'k': <tests.unit.vocabulary.test_values.Touchy>}"),
    "dict's child": (TouchyDict(a=1), "TouchyDict {'a': 1}"),
    "text's child": (TouchyText("a"), "'a'"),
    "module": (collections, "<module collections>"),
    "function": (describe, "<function describe>"),
    "class": (Touchy, "<class tests.unit.vocabulary.test_values.Touchy>"),
}


@pytest.mark.anypython
@pytest.mark.parametrize("case", TEXTS)
def test_short_texts(case: str) -> None:
    """Simple values are shown, containers in part, and everything else goes by its class."""
    value, text = TEXTS[case]
    shown = describe(value)
    assert shown == text
    assert len(shown) <= 120


@pytest.mark.anypython
def test_a_class_that_answers_nothing() -> None:
    """Not even the class of a value's class is asked for anything."""

    class Mute(metaclass=TouchyClass):
        """A class that pytest had better not meet in the module."""

    here = "tests.unit.vocabulary.test_values.test_a_class_that_answers_nothing.<locals>"
    assert describe(Mute()) == f"<{here}.Mute>"
    assert describe(Mute) == "<tests.unit.vocabulary.test_values.TouchyClass>"


@pytest.mark.anypython
def test_reading_locals_keeps_nothing_alive() -> None:
    """A value that the function lets go of is gone, although its variables have been read."""

    class Thing:
        pass

    read, let_go, end, seen = threading.Event(), threading.Event(), threading.Event(), []
    is_gone = threading.Event()

    def work() -> None:
        sys._getframe().f_trace = (
            None  # a debugger's, whose variables are left to it, or coverage's
        )
        thing = Thing()
        seen.append(weakref.ref(thing))
        read.set()
        let_go.wait()
        del thing
        is_gone.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        read.wait()
        stacks = {stack.thread_id: stack for stack in take_backtrace(locals=True).threads}
        frames = stacks[thread.native_id or 0].frames
        mine = next(frame for frame in frames if frame.func.endswith("work"))
        assert [v.name for v in mine.locals or ()][:1] == ["thing"]
        let_go.set()
        is_gone.wait()
        assert seen[0]() is None
    finally:
        let_go.set()
        end.set()
        thread.join()


@pytest.mark.anypython
def test_the_names_of_a_module_stay() -> None:
    """Reading a module's frame, whose variables are no copy, takes nothing away from it."""
    space: dict[str, Any] = {"read_locals": read_locals, "sys": sys, "x": 1}
    exec("found = read_locals(sys._getframe()); y = x", space)
    assert space["y"] == 1
    assert ("x", "1") in [(local.name, local.value) for local in space["found"]]


@pytest.mark.anypython
def test_a_function_goes_on_with_its_variables() -> None:
    """A function whose variables were read has them all, closures and changes too."""

    def outer() -> tuple[int, int, int]:
        a, b = 1, 2

        def inner() -> int:
            nonlocal b
            b += 1
            read_locals(_caller(0))
            return a + b

        read_locals(_caller(0))
        a += 1
        return a, b, inner()

    assert outer() == (2, 2, 5)


def _caller(depth: int) -> FrameType:
    """The frame of who asks."""
    return sys._getframe(depth + 1)


@pytest.mark.torch
def test_tensors_by_shape_type_and_device() -> None:
    """No element is read, and a class of the job's own that overrides anything goes by its name."""
    import numpy as np
    import torch

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise Touched

    class Shapeless(torch.Tensor):
        @property
        def shape(self) -> Any:  # type: ignore[override]
            raise Touched

    class Plain(torch.Tensor):
        pass

    base = torch.zeros(8, 128)
    assert describe(base) == "Tensor(8, 128) float32 cpu"
    assert describe(torch.nn.Parameter(base)) == "Parameter(8, 128) float32 cpu"
    assert describe(torch.empty(3, device="meta")) == "Tensor(3) float32 meta"
    assert describe(torch.tensor(1)) == "Tensor() int64 cpu"
    assert describe([base]) == "[Tensor(8, 128) float32 cpu]"
    assert describe(base.as_subclass(Plain)) == "Plain(8, 128) float32 cpu"
    own = "<tests.unit.vocabulary.test_values.test_tensors_by_shape_type_and_device.<locals>."
    assert describe(base.as_subclass(Own)) == f"{own}Own>"
    assert describe(base.as_subclass(Shapeless)) == f"{own}Shapeless>"
    assert describe(np.zeros((2, 3))) == "ndarray(2, 3) float64"
    assert describe(np.float64(0.5)) == "float64(0.5)"
    assert describe(torch.nn.Linear(2, 2)) == "<torch.nn.modules.linear.Linear>"


class _Frame:
    """Notes when automatic collections may be made as its variables are asked for."""

    f_code = (lambda: None).__code__
    f_trace = None

    def __init__(self) -> None:
        self.thresholds: list[int] = []

    @property
    def f_locals(self) -> dict[str, int]:
        """As of a frame."""
        self.thresholds.append(gc.get_threshold()[0])
        return {"step": 3}


def test_nothing_is_collected_while_a_frame_is_asked_for_its_variables() -> None:
    """In Python 3.11 its thread may leave it meanwhile, and what is read is no frame any more."""
    frame: Any = _Frame()
    usual = gc.get_threshold()[0]
    assert read_locals(frame) == (Local(name="step", value="3"),)
    assert frame.thresholds == [0 if sys.version_info[:2] == (3, 11) else usual]
    assert gc.get_threshold()[0] == usual
