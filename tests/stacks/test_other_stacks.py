"""Stacks of threads that go on while they are walked."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.safety.other_stacks import current_stacks, locals_of, stack_of
from tests.harness.targets import DEADLINE_S, ROOT

pytestmark = pytest.mark.anypython

WALKED = """
import gc, os, sys, threading, time
from probing.safety.other_stacks import current_stacks, locals_of

def wide(n, functions):
    a = b = c = d = e = f = g = h = [n]
    if n:
        functions[n % 2](n - 1, functions)
    assert a is h

def narrow(n, functions):
    a = [n]
    if n:
        functions[n % 3 % 2](n - 1, functions)
    assert a[0] == n

def walk():
    walker.append(threading.get_ident())
    while True:
        stack = current_stacks()[main]
        for frame in stack:
            if frame.f_code in (wide.__code__, narrow.__code__):
                locals_of(frame)
        walks.append(len(stack))

def collected(phase, facts):  # where another thread may go on
    if threading.get_ident() in walker:
        time.sleep(0.0002)

walker, walks, main = [], [], threading.get_ident()
gc.callbacks.append(collected)
gc.set_threshold(20, 5, 7)
sys.setswitchinterval(1e-4)
threading.Thread(target=walk, daemon=True).start()
end = time.monotonic() + 1.5
while time.monotonic() < end or len(walks) < 100:
    for depth in (60, 3, 40, 1):
        narrow(depth, (narrow, wide))
        wide(depth, (wide, narrow))
print("alive", max(walks) > 3, gc.get_threshold() in ((20, 5, 7), (0, 5, 7)), flush=True)
os._exit(0)
"""


def test_a_walk_does_no_harm_while_garbage_is_collected() -> None:
    """A stack changes as a collection that the walk sets off lets its thread go on: all live."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", WALKED],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive True True\n", "")


def test_a_stack_is_what_its_frames_say() -> None:
    """The innermost frame first, as many as are asked for, with their variables."""
    own = sys._getframe()
    stack = current_stacks()[threading.get_ident()]
    assert stack[0] is own
    assert all(inner.f_back is outer for inner, outer in itertools.pairwise(stack))
    assert stack[-1].f_back is None
    assert stack_of(own, 2) == stack[:2]
    assert stack_of(None) == []
    assert locals_of(own)["own"] is own
    del stack, own


def test_nothing_of_the_frames_stays() -> None:
    """Without a collection of garbage: they hold what the functions of a training hold."""

    class Held:
        pass

    def looked_at() -> weakref.ref[Held]:
        held = Held()
        current_stacks().clear()
        return weakref.ref(held)

    gc.disable()
    try:
        assert looked_at()() is None
    finally:
        gc.enable()


def test_stacks_of_a_thread_that_goes_on_are_whole() -> None:
    """Also of one that is in a generator, which forgets its caller as it yields."""
    is_over = threading.Event()
    thread = threading.Thread(target=_yield_until, args=(is_over,))
    interval = sys.getswitchinterval()
    thread.start()
    try:
        sys.setswitchinterval(1e-6)
        for _ in range(2000):
            stacks = current_stacks()
            outermost = stacks[thread.ident or 0][-1].f_code.co_name
            assert outermost == "_bootstrap"
            assert stacks[threading.get_ident()][0] is sys._getframe()
            stacks.clear()
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        thread.join(DEADLINE_S)


def _yield_until(is_over: threading.Event) -> None:
    """Run through generators."""

    def numbers() -> Iterator[int]:
        for number in range(5):
            yield sum(other for other in range(number))

    while not is_over.is_set():
        assert sum(numbers()) == 10


def test_nobody_walks_the_stacks_of_others_in_another_way() -> None:
    """What asks the interpreter for frames of other threads asks by `other_stacks`."""
    asking = {
        str(path.relative_to(ROOT))
        for folder in ("agent", "probing/safety")
        for path in Path(ROOT, folder).rglob("*.py")
        if "sys._current_frames(" in path.read_text("utf-8")
    }
    assert asking == set()
