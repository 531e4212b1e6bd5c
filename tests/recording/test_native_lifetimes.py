"""The C part of the recorder keeps nothing beyond its time: no state of a thread, no exception."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.ring import native
from tests.harness.targets import Target, clean_env

in_c = pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python")

SET_UP = """
import gc, sys, weakref
from types import SimpleNamespace
from probing.ring.native import IN_C, Words, Moment
from probing.ring.format import HEADER_SIZE, layout_of
from probing.tables import TORCH_TRACE

class State(IN_C.Thread):
    __slots__ = ("__weakref__",)

def new_state():
    state = State()
    state.depth = 1
    state.facts = state.backward_facts = [bytes(24)] * 256
    return state

class Module:
    def forward(self, *args, **kwargs):
        return 1

    def __call__(self, *args, **kwargs):
        return "by Python"

def install(**other):
    IN_C.install(**{**dict(
        function=Module.__call__, original=Module.forward, is_direct=False,
        layout=tuple((f.column.name, f.offset, f.code) for f in layout_of(TORCH_TRACE).fields),
        ring=memoryview(bytearray(HEADER_SIZE + 64 * 64)), words=Words(4), now=Moment(),
        known={id(module): bytes(12)}, state_of_thread=new_state, sample=lambda: None,
        note_failure=lambda *given: None, fault=lambda: print("fault"),
        is_programs=lambda error: False,
    ), **other})

module = Module()
"""

FREED = """
asked = []

def state():
    asked.append(1)
    return holder[0] if holder else new_state()

holder = [new_state()]
install(state_of_thread=state)
IN_C.run(is_on=True)
print(module(), module(), len(asked))
for _ in range(3):
    holder[:] = [new_state()]
print(module(), module(), len(asked))
holder.clear()
print(module(), module(), len(asked))
"""

IN_HAND = """
def fails(self):
    raise ValueError

class Big:
    pass

def train():
    yield
    try:
        module()
    except ValueError:
        pass
    yield
    print("in hand", sys.exc_info()[1])
    yield

def step(training):
    big = Big()
    try:
        raise KeyError
    except KeyError:
        next(training)
        print("around", repr(sys.exc_info()[1]))
    return weakref.ref(big)

kept = new_state()
install(
    original=fails, state_of_thread=lambda: kept,
    note_failure=lambda *given: print("told", repr(sys.exc_info()[1]), sys.exc_info()[2].tb_lineno)
)
IN_C.run(is_on=True)
training = train()
next(training)
left = step(training)
gc.collect()
print("alive", left() is not None)
next(training)
"""

DEEP = """
class Tensor:
    made = 0

    def __init__(self):
        Tensor.made += 1
        self.number = Tensor.made

    @property
    def grad_fn(self):
        return self

    def _sequence_nr(self):
        return self.number

    def _register_hook_dict(self, carrier):
        hooked.append(self.number)

kept, hooked = new_state(), []
install(original=lambda self, *args, **kwargs: Tensor(), state_of_thread=lambda: kept)
IN_C.hook_backward(
    tensor=Tensor, hook=lambda gradient, place=None: None, hooked={},
    make=lambda key: IN_C.Hooked(bytes(12), "0:name"), carrier=SimpleNamespace,
    is_mode_on=lambda: False, without_modes=print, fault=lambda: print("fault"),
    passing=set(), newest=int, is_walked=bool,
)
IN_C.run_backward(is_on=True)
IN_C.run(is_on=True)
own = IN_C.Hooked(bytes(12), "0:name")
for args, kwargs in [
    (([[Tensor()]],), {}), (([[[Tensor()]]],), {}),
    ((), {"x": [[Tensor()]]}), ((), {"x": [[[Tensor()]]]}),
]:
    counts = []
    hooked.clear()
    module(*args, **kwargs)
    counts.append(len(hooked))
    hooked.clear()
    IN_C.attach(own, args, kwargs, Tensor(), 1)
    counts.append(len(hooked))
    print(*counts)
"""


def run(script: str, home: Path) -> list[str]:
    """What a script prints, in an interpreter of its own in which what is freed is written over."""
    done = subprocess.run(
        [sys.executable, "-c", SET_UP + script],
        env={**clean_env(home), "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.anypython
@in_c
def test_a_freed_state_of_a_thread_is_asked_for_anew(tmp_path: Path) -> None:
    """It may end before its thread does; one that nobody keeps leaves the call to Python."""
    assert run(FREED, tmp_path) == ["1 1 1", "1 1 2", "by Python by Python 4"]


@pytest.mark.anypython
@in_c
def test_an_exception_in_hand_around_a_generator_stays_out_of_it(tmp_path: Path) -> None:
    """A module fails in a generator, which is run while its caller handles another exception."""
    told, *others = run(IN_HAND, tmp_path)
    assert told.startswith("told ValueError() ")
    assert others == ["around KeyError()", "alive False", "in hand None"]


@pytest.mark.anypython
@in_c
def test_inputs_are_looked_into_as_deep_in_every_way(tmp_path: Path) -> None:
    """By position and by name, in a call that C records and in one that the wrapper does."""
    assert run(DEEP, tmp_path) == ["2 2", "1 1", "2 2", "1 1"]


@pytest.mark.torch
@in_c
def test_where_greenlets_have_own_locals_calls_are_recorded_in_python(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under gevent: what one has of a thread ends with it, and C would go on with that."""
    target = program("greenlets", PROBING="1")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    process = probing.connect(target.pid)
    notes = {row[0]: str(row[-1]) for row in process.live("sources").rows}
    assert notes["modules"].startswith("in Python: threading.local is of greenlets here")
    (row,) = process.query("SELECT count(*) AS n FROM python.torch_trace").to_pylist()
    assert row["n"] > 10
