"""The C part of the recorder: it writes the rows that Python writes, and does no harm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.ring import native
from tests.harness.targets import Target, clean_env

in_c = pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python")

FEATURES = (
    "inference",
    "training",
    "two_optimizers",
    "checkpointing",
    "exception",
    "compiled",
    "transforms",
    "scripted",
    "data_parallel",
    "threads",
    "many_modules",
    "swapped",
)
ROWS = (
    "SELECT thread_id IN (SELECT max(thread_id) FROM python.steps) AS main, step, module, class,"
    " root, stage, depth, recomputed, training, failed, duration_ns IS NULL AS is_open,"
    " count(*) AS n FROM python.torch_trace WHERE stage <> 'backward' GROUP BY ALL ORDER BY ALL"
)


@pytest.mark.torch
@in_c
@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("odd_calls", ()),
        ("odd_moments", ()),
        ("torch_features", FEATURES),
    ],
)
def test_both_ways_write_the_same_rows(
    name: str,
    features: tuple[str, ...],
    program: Callable[..., Target],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a program does, C and Python record the same calls, and it prints the same."""
    found: list[list[dict[str, Any]]] = []
    prints: list[list[str]] = []
    for way in ("1", "0"):
        target = program(name, *features, PROBING_NATIVE=way)
        target.wait_for_output("done")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        process = probing.connect(target.pid)
        assert process.status().problems == ()
        notes = {row[0]: str(row[-1]) for row in process.live("sources").rows}
        assert notes["modules"].startswith("in C" if way == "1" else "in Python")
        found.append(process.query(ROWS).to_pylist())
        prints.append(target.output.splitlines())
        target.reap()
    assert len(found[0]) > 10
    assert found[0] == found[1]
    assert prints[0] == prints[1]


@pytest.mark.anypython
@pytest.mark.parametrize("kind", ["C", "Python"])
def test_both_kinds_of_shared_state_are_alike(kind: str) -> None:
    """Words, moments and threads of C are what those of Python are."""
    if kind == "C" and native.IN_C is None:
        pytest.skip("the C part is not built for this Python")
    words = (native.IN_C.Words if kind == "C" else native.PlainWords)(8)
    assert [words.take(), words.take(), words.next] == [8, 12, 16]
    moment = (native.IN_C.Moment if kind == "C" else native.PlainMoment)()
    assert (moment.step, moment.due_ns, moment.bytes, moment.passes) == (0, 0, 0, 0)
    moment.step, moment.due_ns, moment.bytes, moment.passes = 3, 2**62, -(2**63), 5
    assert (moment.step, moment.due_ns, moment.bytes, moment.passes) == (3, 2**62, -(2**63), 5)

    class State(native.IN_C.Thread if kind == "C" else native.PlainThread):  # type: ignore[misc]
        __slots__ = ("more",)

    state = State()
    state.depth, state.facts, state.more = 2, [b"x"], 1
    assert (state.depth, state.facts, state.more) == (2, [b"x"], 1)
    state.recomputing, state.seen_passes, state.first_new = True, 6, 2**64 - 1
    assert (state.recomputing, state.seen_passes, state.first_new) == (True, 6, 2**64 - 1)


INSTALL = """
import sys
from probing.ring.native import IN_C, Words, Moment
from probing.ring.format import HEADER_SIZE, layout_of
from probing.tables import TORCH_TRACE

def call(self, *args, **kwargs):
    return "python"

layout = tuple((f.column.name, f.offset, f.code) for f in layout_of(TORCH_TRACE).fields)
given = dict(
    function=call, original=call, is_direct=False, layout=layout,
    ring=memoryview(bytearray(HEADER_SIZE + 64 * 64)), words=Words(4), now=Moment(), known={},
    state_of_thread=lambda: None, sample=print, note_failure=print, fault=print,
    is_programs=print,
)

def refused(**other):
    try:
        IN_C.install(**{**given, **other})
    except (BufferError, ValueError, TypeError) as error:
        return str(error)
    raise AssertionError(other)

first, *rest = layout
print(refused(layout=(*rest, first)))
print(refused(layout=tuple(rest)))
print(refused(layout=((first[0], first[1] + 8, first[2]), *rest)))
print(refused(ring=memoryview(bytearray(HEADER_SIZE + 64 * 63))))
print(refused(ring=memoryview(bytearray(10))))
print(refused(ring=memoryview(bytes(HEADER_SIZE + 64 * 64))))
print(refused(known=[]))
assert call(1) == "python"

IN_C.install(**given)
try:
    IN_C.install(**given)
except RuntimeError as error:
    print(error)
IN_C.run(is_on=True)
before = sys.getrefcount(call), sys.getrefcount(given["known"])
assert call(1) == "python", "what is not a thread of ours is left to Python"
IN_C.run(is_on=False)
IN_C.uninstall()
IN_C.uninstall()
assert call(1) == "python"
for _ in range(10_000):
    IN_C.install(**given)
    IN_C.run(is_on=True)
    call(1)
    IN_C.uninstall()
assert (sys.getrefcount(call) + 1, sys.getrefcount(given["known"]) + 1) == before
given["ring"].release()
print("ok")
"""


TRACED = """
import sys
from probing.ring.native import IN_C, Words, Moment
from probing.ring.format import HEADER_SIZE, layout_of
from probing.tables import TORCH_TRACE

class State(IN_C.Thread):
    __slots__ = ()

def call(self):
    return "by Python"

class Module:
    __call__ = call

module, state = Module(), State()
state.depth, state.facts = 1, [bytes(24)] * 256
ring = memoryview(bytearray(HEADER_SIZE + 64 * 64))
IN_C.install(
    function=call, original=lambda self: "by C", is_direct=False,
    layout=tuple((f.column.name, f.offset, f.code) for f in layout_of(TORCH_TRACE).fields),
    ring=ring, words=Words(4), now=Moment(), known={id(module): bytes(12)},
    state_of_thread=lambda: state, sample=lambda: None, note_failure=print, fault=print,
    is_programs=print,
)
IN_C.run(is_on=True)
print(module())
sys.setprofile(lambda *event: None)
traced = module()
sys.setprofile(None)
print(traced)
print(module())
print(bytes(ring[HEADER_SIZE:]).count(bytes(7)) > 0, state.depth)
"""


ENDED = """
import sys
from types import SimpleNamespace
from probing.ring.native import IN_C, Words, Moment
from probing.ring.format import HEADER_SIZE, layout_of
from probing.tables import TORCH_TRACE

class State(IN_C.Thread):
    __slots__ = ()

class Node:
    def _sequence_nr(self):
        return end("number") or 1

    def _register_hook_dict(self, carrier):
        hooks.append(carrier._backward_hooks[0])
        end("register")

class Module:
    def forward(self):
        return Tensor()

class Tensor:
    @property
    def grad_fn(self):
        end("grad_fn")
        return Node()

def call(self, *given):
    return "by Python"

def state():
    found = holder[0]
    end("state")
    return found

def new_state():
    state = State()
    state.depth = 1
    state.facts = state.backward_facts = [bytes(24)] * 256
    state.recomputing = sys.argv[1] == "walked"
    return state

def end(where, *given):
    if where == sys.argv[1] and holder:
        IN_C.uninstall()
        holder.clear()

Module.__call__ = call
holder, hooks, names = [new_state()], [], ["0:other", "0:name"]
modules = Module(), Module()
IN_C.install(
    function=call, original=lambda self, given: Module.forward(self), is_direct=False,
    layout=tuple((f.column.name, f.offset, f.code) for f in layout_of(TORCH_TRACE).fields),
    ring=memoryview(bytearray(HEADER_SIZE + 64 * 64)), words=Words(4), now=Moment(),
    known={id(module): bytes(12) for module in modules}, state_of_thread=state,
    sample=lambda: end("sample" if hooks else ""), note_failure=print, fault=lambda: end("fault"),
    is_programs=lambda error: False,
)
IN_C.hook_backward(
    tensor=Tensor, hook=lambda gradient, place=None: None, hooked={},
    make=lambda key: end("make") or IN_C.Hooked(bytes(12), names.pop()),
    carrier=lambda: end("carrier") or SimpleNamespace(), is_mode_on=lambda: end("mode") or False,
    without_modes=print, fault=lambda: end("fault"),
    passing={1} if sys.argv[1] == "newest" else set(),
    newest=lambda: end("newest") or 8, is_walked=lambda node: end("walked") or False,
)
IN_C.run_backward(is_on=True)
IN_C.run(is_on=True)
for module in modules:
    module(Tensor())
for hook in hooks:
    assert hook(None) is None
IN_C.uninstall()
print("alive", not holder)
"""


@pytest.mark.anypython
@in_c
@pytest.mark.parametrize(
    "where",
    [
        *("state", "sample", "make", "carrier", "mode", "grad_fn", "number", "register"),
        *("newest", "walked"),
    ],
)
def test_a_recording_may_end_in_the_midst_of_a_call(where: str, tmp_path: Path) -> None:
    """Whatever of Python runs in a call or a hook, another thread may end the recording in it."""
    env = {**clean_env(tmp_path), "PYTHONMALLOC": "debug"}  # what is freed is written over
    done = subprocess.run(
        [sys.executable, "-c", ENDED, where], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive True\n"), done.stderr


INTERRUPTED = """
import signal, sys
from probing.ring.native import IN_C, Words, Moment
from probing.ring.format import FAILED, HEADER_SIZE, layout_of
from probing.safety.handlers import is_of_handler
from probing.tables import TORCH_TRACE

class State(IN_C.Thread):
    __slots__ = ()

class Tensor:
    grad_fn = object()

class Late(Exception):
    pass

class Module:
    def forward(self):
        if sys.argv[1] == "failed":
            raise ValueError
        return Tensor()

def call(self):
    return "by Python"

def ring(number, frame):
    raise {"KeyboardInterrupt": KeyboardInterrupt, "Late": Late}[sys.argv[2]](sys.argv[1])

def interrupt(*args):
    signal.raise_signal(signal.SIGALRM)

def fails(*args):
    raise OSError

def failed(depth, word, start):
    told.append((type(sys.exc_info()[1]).__name__, depth, word))
    if sys.argv[1] == "failed":
        interrupt()

Module.__call__ = call
module, state, told, faults = Module(), State(), [], []
state.depth, state.facts = 1, [bytes(24)] * 256
given = dict(
    function=call, original=Module.forward, is_direct=False,
    layout=tuple((f.column.name, f.offset, f.code) for f in layout_of(TORCH_TRACE).fields),
    ring=memoryview(bytearray(HEADER_SIZE + 64 * 64)), words=Words(4), now=Moment(),
    known={id(module): bytes(12)},
    state_of_thread=lambda: state, sample=lambda: None, note_failure=failed,
    fault=lambda: faults.append(1), is_programs=is_of_handler,
)
hooking = dict(
    tensor=Tensor, hook=lambda gradient, place=None: None, hooked={},
    make=lambda key: IN_C.Hooked(bytes(12), "0:name"), carrier=object, is_mode_on=lambda: False,
    without_modes=print, fault=lambda: faults.append(1), passing=set(), newest=int, is_walked=bool,
)
if sys.argv[1] == "is_programs":
    # The fault of ours is asked about first, and in the midst of that the handler raises.
    given.update(sample=fails, is_programs=lambda error: (
        interrupt() if type(error) is OSError else is_of_handler(error)
    ))
elif sys.argv[1] in hooking:
    hooking[sys.argv[1]] = interrupt
elif sys.argv[1] != "failed":
    given[sys.argv[1]] = interrupt
signal.signal(signal.SIGALRM, ring)
IN_C.install(**given)
IN_C.hook_backward(**hooking)
IN_C.run_backward(is_on=True)
IN_C.run(is_on=True)
before = sys.getrefcount(module), sys.getrefcount(state)
try:
    module()
except (KeyboardInterrupt, Late) as error:
    print(type(error).__name__, error, repr(error.__context__))
print(told, faults, state.depth)
assert (sys.getrefcount(module), sys.getrefcount(state)) == before
IN_C.uninstall()
"""


@pytest.mark.anypython
@in_c
@pytest.mark.parametrize(
    ("place", "context", "told"),
    [
        ("sample", "None", "[(KIND, 1, 4)]"),
        ("is_programs", "None", "[(KIND, 1, 4)]"),
        ("make", "None", "[(KIND, 1, 4)]"),
        ("carrier", "None", "[(KIND, 1, 4)]"),
        ("is_mode_on", "None", "[(KIND, 1, 4)]"),
        ("failed", "ValueError()", "[('ValueError', 1, 4)]"),
        ("state_of_thread", "None", "[]"),
    ],
)
@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "Late"])
def test_an_interrupt_in_the_midst_of_ours_is_the_programs(
    place: str, context: str, told: str, kind: str, tmp_path: Path
) -> None:
    """What a signal's handler raises while Python looks at memory, say, is no fault of ours."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, place, kind],
        env=clean_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = told.replace("KIND", repr(kind))
    lines = [f"{kind} {place} {context}", f"{told} [] 1"]
    assert done.stdout.splitlines() == lines, done.stderr


@pytest.mark.anypython
@in_c
def test_who_traces_python_sees_the_call(tmp_path: Path) -> None:
    """torch.profiler finds modules by the frames of their calls: a traced thread has them."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED],
        env=clean_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == ["by C", "by Python", "by C", "True 1"], done.stderr


@pytest.mark.anypython
@in_c
def test_it_takes_only_what_it_knows_and_lets_go_of_all(tmp_path: Path) -> None:
    """Another layout or size is refused in a sentence; 10,000 starts and stops leave nothing."""
    done = subprocess.run(
        [sys.executable, "-c", INSTALL],
        env=clean_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("the column start_ns")], lines
    assert sum("other columns" in line for line in lines) == 1
    assert sum("another size" in line for line in lines) == 2
    assert lines[-2:] == ["the C recorder serves one recording at a time", "ok"]


@pytest.mark.torch
@pytest.mark.timeout(6000)
@pytest.mark.parametrize(
    ("kind", "way", "times"),
    [
        ("stop", "1", 4),
        *(
            pytest.param(kind, way, times, marks=pytest.mark.nightly)
            for kind in ("pause", "stop")
            for way, times in (("1", 10_000), ("0", 1_000))
        ),
    ],
)
def test_starts_and_stops_of_recording_leave_nothing(
    kind: str, way: str, times: int, program: Callable[..., Target]
) -> None:
    """No object, no reference, no byte of Python's, in a process that trains: it asserts that."""
    target = program("many_starts", kind, str(times), PROBING="0", PROBING_NATIVE=way)
    assert target.process.wait(5000) == 0, target.output
    assert "done" in target.output


@pytest.mark.torch
@pytest.mark.parametrize(
    ("way", "times"),
    [("1", 1), *(pytest.param(way, 5, marks=pytest.mark.nightly) for way in ("1", "0"))],
)
def test_a_program_ends_in_the_midst_of_calls(
    way: str, times: int, program: Callable[..., Target]
) -> None:
    """The interpreter goes while daemon threads are inside of modules that are on record."""
    for _ in range(times):
        target = program("ends_in_calls", PROBING_NATIVE=way)
        assert target.process.wait(120) == 0, target.output
        assert target.output.splitlines() == ["done"]
        target.reap()
