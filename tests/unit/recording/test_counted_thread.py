"""Which of the calls that threads make at once are steps, of inference or of a training."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.recording.training_thread import Trainers
from probing.agent.sources.shared.objects import Objects
from probing.agent.sources.shared.recording import RootCall
from probing.agent.sources.steps.ends.counted_thread import CountedThread

GONE = 1 << 30
"""A number that no thread has: the kernel gives none above 2 ** 22."""


class Threads:
    """Threads by their numbers: which of them is counted, and what they do.

    Attributes:
        called: The roots that the step in progress is known to be of.
        restarts: How often the step in progress began anew.
    """

    def __init__(self, counted: int, *trainers: int) -> None:
        self.restarts = 0
        known = Trainers()
        known.threads.update(trainers)
        recording: Any = SimpleNamespace(
            training_thread=counted,
            trainers=known,
            objects=Objects(),
            safe_points=SimpleNamespace(stepping=bool(trainers)),
            note_trainer=known.threads.add,
        )
        self.recording: Any = recording
        self.called = list[Any]()
        members: Any = SimpleNamespace(
            step_ended=self.called.clear, root_called=lambda root, _: self.called.append(root)
        )
        self.counted = CountedThread(recording, members, self._restart)

    def _restart(self) -> None:
        self.restarts += 1

    def is_apart(
        self,
        number: int,
        *,
        has_grad: bool = False,
        is_main: bool = True,
        root: Any = None,
        has_trained: bool = False,
    ) -> bool:
        """Whether a thread's call is no part of a step."""
        call = RootCall(
            root, None, (0, 0, 0), has_parameters=True, has_grad=has_grad,
            has_optimizer=self.recording.safe_points.stepping, samples=None,
        )  # fmt: skip
        return self.counted.is_apart(
            _thread(number), call, is_main=is_main, has_trained=has_trained
        )

    def ends(self, calls: int, *, is_main: bool = True) -> int:
        """How many calls that begin in another thread end the step of the first one."""
        found = 0
        for _ in range(calls):
            is_apart = self.is_apart(2, is_main=is_main)
            found += not is_apart
            if not is_apart:
                self.counted.infers(_thread(2))
        return found


def test_a_call_that_does_not_return_is_no_step_for_ever() -> None:
    """One that others begin beside, each thread a few, is; calls of its parts tell nothing."""
    threads = Threads(1)
    few = 8 * threading.active_count()
    for _ in range(2):
        threads.counted.infers(_thread(1))
        assert threads.ends(few) == 0
    assert threads.ends(few, is_main=False) == 0
    assert threads.ends(1) == 1
    assert threads.counted.infers_beside


@pytest.mark.parametrize(
    ("has_grad", "has_trained", "is_apart"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_calls_beside_a_thread_that_trains(
    has_grad: bool, has_trained: bool, is_apart: bool
) -> None:
    """An actor's are no part of a step; those of a pool, whose threads train in turn, are."""
    threads = Threads(os.getpid(), os.getpid(), *([2] if has_trained else []))
    assert threads.is_apart(2, has_grad=has_grad) is is_apart
    assert threads.recording.training_thread == os.getpid()
    assert not threads.restarts


def test_a_thread_that_trains_comes_before_one_that_only_calls() -> None:
    """Though that was there first, and may train by all that its calls show."""
    threads = Threads(os.getpid())
    assert threads.counted.passes(_thread(2))
    assert (threads.recording.training_thread, threads.restarts) == (2, 1)
    threads = Threads(os.getpid(), 2)
    assert not threads.is_apart(2, has_grad=True)
    assert (threads.recording.training_thread, threads.restarts) == (2, 1)


def test_of_two_threads_that_begin_at_once_the_step_is_of_one() -> None:
    """Of that which makes a pass first, with the model it has called; what the other did is not."""
    threads, theirs, over = Threads(os.getpid()), _Model(), threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        number = other.native_id or 0
        threads.called.append("the first one's model")
        assert threads.is_apart(number, has_grad=True, root=theirs, has_trained=True)
        assert threads.called == ["the first one's model"]
        assert threads.counted.passes(_thread(number))
        assert threads.called == [theirs]
        assert not threads.counted.passes(_thread(os.getpid()))
        assert threads.recording.training_thread == number
    finally:
        over.set()
        other.join()


def test_a_thread_follows_one_that_has_ended() -> None:
    """Also one that has trained nothing: then nobody trains beside it."""
    threads = Threads(GONE, GONE)
    assert not threads.is_apart(2)
    assert threads.recording.training_thread == 2


class _Model:
    """Stands for one, of which there are weak references."""


def _thread(number: int) -> Any:
    return SimpleNamespace(native_id=number)
