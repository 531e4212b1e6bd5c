"""Objects that are looked for by way of the garbage collector, beside other threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time

import pytest

from probing.agent.sources.storage.living import living
from tests.harness.targets import DEADLINE_S, ROOT

pytestmark = pytest.mark.anypython

_LOOKED_S = 1.5


class Wanted:
    """What is looked for."""


@pytest.mark.slow
def test_tuples_that_another_thread_is_making_are_not_in_the_way() -> None:
    """One of what comes item by item cannot grow while somebody else refers to it."""
    crowd = [[number] for number in range(100_000)]
    wanted = [Wanted() for _ in range(10)]
    failed: list[SystemError] = []
    ended = threading.Event()

    def make() -> None:
        while not ended.is_set():
            try:
                tuple(ended.wait(0.001) for _ in range(40))
            except SystemError as error:
                failed.append(error)

    maker = threading.Thread(target=make)
    maker.start()
    until = time.monotonic() + _LOOKED_S
    while time.monotonic() < until:
        gc.collect()  # what is half made is old from then on
        (found,) = living((Wanted,))
        # The collector may have them in another order: each is there once, about the oldest first.
        assert sorted(map(id, found)) == sorted(map(id, wanted))
    ended.set()
    maker.join()
    assert failed == []
    assert len(crowd) == 100_000


HELD = """
import gc, sys
from probing.agent.sources.storage.living import Survey, kinds_of, objects_of

class Wanted:
    pass

class Bystander:
    pass

def looked(*event):
    if is_on and event[0] in ("start", "gc.get_objects"):
        if sys.getrefcount(thing[0]) > is_on[0]:
            held.add(event[0])

def look(action, given, of, age):
    for most in range(1, 16):
        gc.set_threshold(0)
        gc.collect(2)
        thing[0] = of()
        for generation in range(age):
            gc.collect(generation)
        gc.set_threshold(most, 1_000_000, 1_000_000)
        is_on.append(sys.getrefcount(thing[0]))
        action(given)
        is_on.clear()
    print(action.__name__, *sorted(held))
    held.clear()

wanted = {number: Wanted() for number in range(100)}
thing, is_on, held = {}, [], set()
gc.callbacks.append(looked)
sys.addaudithook(looked)
look(kinds_of, (0, 1, 2), Bystander, 0)
look(objects_of, (Wanted,), Bystander, 1)
look(Survey, (Wanted,), lambda: wanted[0], 2)
"""


def test_nobodys_code_runs_while_others_objects_are_held() -> None:
    """Callbacks of the collector, and hooks that audit, are Python: other threads go on in them."""
    done = subprocess.run(
        [sys.executable, "-c", HELD],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert (done.stdout.splitlines(), done.stderr) == (["kinds_of", "objects_of", "Survey"], "")
