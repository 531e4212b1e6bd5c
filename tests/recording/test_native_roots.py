"""The call of a root in C: what is told of it before and behind, and what goes wrong in that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probing.ring import native
from tests.harness.targets import clean_env

pytestmark = [
    pytest.mark.anypython,
    pytest.mark.skipif(native.IN_C is None, reason="the C part is not built for this Python"),
]

ROOTS = """
import sys
from probing.ring.native import IN_C, Words, Moment
from probing.ring.format import HEADER_SIZE, layout_of
from probing.tables import TORCH_TRACE

class State(IN_C.Thread):
    __slots__ = ()

class Interrupt(BaseException):
    pass

def call(self, *args, **kwargs):
    return "by Python"

class Module:
    __call__ = call

def end():
    if holder:
        IN_C.uninstall()
        holder.clear()

def happen(where):
    how = script.get(where)
    if how == "ends":
        end()
    elif how is not None:
        raise how(where)

def original(self, *args, **kwargs):
    events.append(("called", args, kwargs, state.depth))
    if inner is not None:
        inner()
    happen("called")
    return result

def entered(module, thread, args, kwargs):
    assert (module, thread) == (root, state)
    events.append(("entered", args, kwargs))
    happen("entered")
    return script.get("ids", bytes(range(1, 13)))

def left(module, thread, returned):
    assert (module, thread, returned) == (root, state, result)
    events.append(("left", state.depth))
    happen("left")

def failed(depth, word, start):
    events.append(("failed", depth, word, type(sys.exc_info()[1]).__name__))

def fault():
    events.append(("fault", type(sys.exc_info()[1]).__name__))

root, result, state, inner = Module(), object(), State(), None
state.depth, state.facts = 0, [bytes(23) + bytes((at,)) for at in range(256)]
ring = memoryview(bytearray(HEADER_SIZE + 64 * 64))
holder, events, script = [state], [], {}

def install():
    holder[:] = [state]
    IN_C.install(
        function=call, original=original, is_direct=False,
        layout=tuple((f.column.name, f.offset, f.code) for f in layout_of(TORCH_TRACE).fields),
        ring=ring, words=Words(4), now=Moment(), known={id(root): bytes(12)},
        state_of_thread=lambda: state, sample=lambda: None, note_failure=failed, fault=fault,
        is_programs=lambda error: False,
    )
    IN_C.record_roots(entered, left)
    IN_C.run(is_on=True)

def tell(**how):
    script.clear()
    script.update(how)
    events.clear()
    install()
    ring[HEADER_SIZE:] = bytes(64 * 64)
    try:
        told = root(7, by=8)
        told = "result" if told is result else told
    except BaseException as error:
        told = type(error).__name__
    row = bytes(ring[HEADER_SIZE + 64 : HEADER_SIZE + 128])
    word, ended = (int.from_bytes(row[at : at + 8], "little") for at in (0, 56))
    IN_C.uninstall()
    names = " ".join("-".join(map(str, (e[0], *(e[1:] if e[0] in ("failed", "fault") else ()))))
                     for e in events)
    print(told, names, (word, ended, row[20:32] == bytes(range(1, 13))), state.depth)

for how in (
    {},
    {"ids": b""},
    {"ids": None},
    {"ids": b"odd"},
    {"entered": ValueError},
    {"entered": Interrupt},
    {"called": ValueError},
    {"called": Interrupt},
    {"left": ValueError},
    {"left": Interrupt},
    {"entered": "ends"},
    {"called": "ends"},
    {"left": "ends"},
):
    tell(**how)

script.clear()
events.clear()
install()
inner = lambda: events.append(("within", state.depth))
root(7, by=8)
print(events == [
    ("entered", (7,), {"by": 8}), ("called", (7,), {"by": 8}, 1), ("within", 1), ("left", 0)])
inner = None
things = (root, result, state, entered, left, failed)
before = [sys.getrefcount(thing) for thing in things]
for how in ({}, {"ids": None}, {"entered": ValueError}, {"called": ValueError}):
    script.clear()
    script.update(how)
    for _ in range(1000):
        try:
            root(7, by=8)
        except ValueError:
            pass
        events.clear()
print([sys.getrefcount(thing) for thing in things] == before)
sys.setprofile(lambda *event: None)
traced = root(7)
sys.setprofile(None)
print(traced)
IN_C.uninstall()
"""

TOLD = """\
result entered called left (4, 5, True) 0
result entered called (0, 0, False) 0
result entered called (0, 0, False) 0
result entered failed-0-0-TypeError fault-TypeError called (0, 0, False) 0
result entered failed-0-0-ValueError fault-ValueError called (0, 0, False) 0
Interrupt entered failed-0-0-Interrupt (0, 0, False) 0
ValueError entered called failed-0-4-ValueError (4, 4, True) 0
Interrupt entered called failed-0-4-Interrupt (4, 4, True) 0
result entered called left fault-ValueError (4, 5, True) 0
Interrupt entered called left failed-0-4-Interrupt (4, 5, True) 0
result entered called (0, 0, False) 0
result entered called (4, 4, True) 0
result entered called left (4, 5, True) 0
True
True
by Python
"""
"""What came of each call, what was told of it, and its row: word, end, whether its numbers are."""


def test_a_root_is_called_once_whatever_goes_wrong(tmp_path: Path) -> None:
    """What is raised before or behind it is a fault of ours, unless it is meant for the program."""
    env = {**clean_env(tmp_path), "PYTHONMALLOC": "debug"}  # what is freed is written over
    done = subprocess.run(
        [sys.executable, "-c", ROOTS], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == TOLD
