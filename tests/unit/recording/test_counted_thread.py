"""Which of the calls that threads make at once are steps of inference."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from probing.agent.sources.steps.ends.counted_thread import CountedThread


def ends_of(counted: CountedThread, calls: int, *, is_main: bool = True) -> int:
    """How many calls that begin in another thread end the step of the first one."""
    thread: Any = SimpleNamespace(native_id=2)
    found = 0
    for _ in range(calls):
        is_apart = counted.is_apart(thread, is_main=is_main, has_trained=False, may_train=False)
        found += not is_apart
        if not is_apart:
            counted.infers(thread)
    return found


def test_a_call_that_does_not_return_is_no_step_for_ever() -> None:
    """One that others begin beside, each thread a few, is; calls of its parts tell nothing."""
    stepping = SimpleNamespace(stepping=False)
    recording: Any = SimpleNamespace(training_thread=1, safe_points=stepping)
    members: Any = None
    counted = CountedThread(recording, members, lambda: None)
    stuck: Any = SimpleNamespace(native_id=1)
    few = 8 * threading.active_count()
    for _ in range(2):
        counted.infers(stuck)
        assert ends_of(counted, few) == 0
    assert ends_of(counted, few, is_main=False) == 0
    assert ends_of(counted, 1) == 1
    assert counted.infers_beside
