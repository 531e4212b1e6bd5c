"""Threads whose class has made something else of `name` than Python does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from probing.agent.crash.exception_record import describe, other_threads
from probing.agent.eval import frame_names
from probing.agent.eval.frame_names import find_thread
from probing.agent.recording.training_thread import number_of, threads_in_torch
from probing.agent.sources.leaks.comers import threads_now
from probing.agent.sources.leaks.references.named_places import _running_frames
from probing.agent.sources.stacks.job_threads import job_threads
from probing.errors import NoSuchThread
from probing.safety import forks, this_thread
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


class Reader(threading.Thread):
    """What a program may well write."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self.is_agents: bool | None = None

    def name(self) -> str:  # type: ignore[override]
        """Hides `Thread.name`."""
        raise AssertionError("the program's own code was run")

    def run(self) -> None:
        """Wait, as a reader does."""
        try:
            self.is_agents = this_thread.is_called("probing-")
        finally:
            self.has_begun.set()
        self.may_end.wait(DEADLINE_S)


@pytest.fixture
def reader() -> Iterator[Reader]:
    """One that runs."""
    thread = Reader()
    thread.start()
    assert thread.has_begun.wait(DEADLINE_S)
    yield thread
    thread.may_end.set()
    thread.join()


def test_it_has_the_name_that_python_gave_it(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which it is listed, found and written down, and is none of the agent's."""
    given, number = reader._name, number_of(reader)  # type: ignore[attr-defined]
    assert given.startswith("Thread-")
    assert {(t.name, t.number) for t in job_threads().threads} >= {(given, number)}
    assert find_thread(given) is reader
    monkeypatch.setattr(frame_names, "_MOST_SHOWN", 10_000)  # other tests may have left threads
    with pytest.raises(NoSuchThread) as caught:
        find_thread("no such name")
    assert given in caught.value.help
    record = describe("exception", ValueError(), None, threading.current_thread())
    assert given in [thread["name"] for thread in other_threads(record)]
    assert reader.ident in threads_now()
    assert any(frame.f_code is Reader.run.__code__ for frame in _running_frames())
    assert reader not in threads_in_torch()
    assert reader.is_agents is False


@pytest.mark.usefixtures("reader")
def test_a_fork_beside_it_is_prepared() -> None:
    """What Python calls before a fork writes into the program's output where it raises."""
    forks._before()
    forks._after_in_parent()
