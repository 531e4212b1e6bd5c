"""Objects that are looked for by way of the garbage collector, beside other threads."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from probing.agent.sources.storage.living import living

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
