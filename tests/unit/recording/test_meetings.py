"""A rank at the place where all ranks run code: held until the word comes, and let go without."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from probing.agent.eval import evaluation
from probing.agent.eval.run import Shared
from probing.agent.recording.safe_points import SafePoints
from probing.agent.sources.actions.moments import meeting as moments
from probing.agent.sources.actions.moments.meeting import Meeting
from probing.messages.about.act import MARKS
from probing.messages.about.eval import Appointment, EvalCommit, EvalJob
from probing.messages.common import EvalRequest
from probing.settings import Settings
from tests.harness.targets import DEADLINE_S, wait_until


def place(more: int, *, waits: bool = True) -> EvalCommit:
    """The end of a step behind one that begins its first collective."""
    return EvalCommit(meeting="m", position=1, more=more, waits=waits)


def begin(more: int) -> EvalCommit:
    """The word that all stand there."""
    return EvalCommit(meeting="m", position=1, more=more, begins=True)


class Rank:
    """A training of one collective a step, as far as it was let go, and an eval that waits."""

    def __init__(self) -> None:
        self.safe_points = SafePoints()
        self.steps = 0
        self.recording = SimpleNamespace(rows=SimpleNamespace(took_ns=10**8))
        self.meeting = Meeting(self, 2, DEADLINE_S)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._train)
        self._until = 0

    def is_moving(self) -> bool:
        """Makes progress."""
        return True

    def go_to(self, step: int) -> None:
        """Train up to the end of a step, in a thread of its own."""
        self.join()
        self._until = step
        self._thread = threading.Thread(target=self._train)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has come there."""
        if self._thread.ident is not None:
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive()

    def wait_held(self, step: int) -> None:
        """Wait until it stands still at the end of a step."""
        wait_until(lambda: self.meeting.held, "it is held")
        assert self.steps == step

    def _train(self) -> None:
        while self.steps < self._until:
            self.steps += 1
            self.safe_points.step_ended()


class _Scene:
    """Where a training is, by its collectives."""

    def __init__(self, training: Any, *_: object, **__: object) -> None:
        self.training, self.recording = training, training.recording

    def place(self) -> tuple[str, int]:
        return MARKS[0], self.training.steps

    def world_size(self) -> int:
        return 2


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    """One of two, let go at last."""
    monkeypatch.setattr(moments, "Scene", _Scene)
    rank = Rank()
    yield rank
    rank.meeting.leave()
    if rank.meeting.visit is not None:
        rank.safe_points.withdraw(rank.meeting.visit)
    rank.join()
    assert not rank.safe_points.waiting


def test_the_code_begins_once_the_word_comes(rank: Rank) -> None:
    """At the place that the word names, and at no other; the training stands still by then."""
    assert rank.meeting.agree(place(2), 1)
    assert not rank.meeting.begin(begin(2))  # on its way
    rank.go_to(9)
    rank.wait_held(3)
    assert rank.meeting.held == place(2)
    assert not rank.meeting.has_begun
    assert not rank.meeting.begin(begin(8))
    assert not rank.meeting.settled.is_set()
    assert rank.meeting.begin(begin(2))
    assert rank.meeting.begin(begin(2))  # whose answer was lost
    assert rank.meeting.settled.is_set()
    assert not rank.meeting.agree(place(8), 1)
    rank.meeting.go_apart("too late")
    assert rank.meeting.apart is None
    assert not rank.meeting.leave()
    assert rank.meeting.visit is not None
    assert rank.steps == 3


def test_a_rank_that_is_held_goes_on_to_a_place_that_is_named_anew(rank: Rank) -> None:
    """Another one had come by the first."""
    assert rank.meeting.agree(place(2), 1)
    rank.go_to(9)
    rank.wait_held(3)
    assert not rank.meeting.agree(place(1), 1)  # a word that is late
    assert rank.meeting.held == place(2)
    assert rank.meeting.agree(place(2 * 3), 1)
    rank.wait_held(7)
    assert rank.meeting.begin(begin(2 * 3))


def test_a_rank_that_is_told_to_run_it_by_itself_is_let_go(rank: Rank) -> None:
    """A place that it hears of afterwards is none: nobody may think that it comes there."""
    assert rank.meeting.agree(place(2), 1)
    rank.go_to(9)
    rank.wait_held(3)
    rank.meeting.go_apart("it was told to")
    rank.join()
    assert rank.steps == 9
    assert rank.meeting.apart == "it was told to"
    assert not rank.meeting.agree(place(20), 1)
    assert not rank.meeting.begin(begin(2))
    assert rank.meeting.visit is None


def test_a_rank_that_nobody_waits_for_any_more_is_let_go(rank: Rank) -> None:
    """The word comes too late for it, which it says."""
    assert rank.meeting.agree(place(2), 1)
    rank.go_to(9)
    rank.wait_held(3)
    assert rank.meeting.leave()
    rank.join()
    assert rank.steps == 9
    assert not rank.meeting.begin(begin(2))


@pytest.mark.parametrize(("waited_s", "is_told"), [(0.0, True), (29.0, True), (31.0, False)])
def test_no_rank_is_said_to_be_held_that_is_about_to_give_up(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, waited_s: float, *, is_told: bool
) -> None:
    """The word to begin has a quarter of the limit to come, by the rank's own clock."""
    now = [0.0]
    monkeypatch.setattr(evaluation, "time", SimpleNamespace(monotonic=lambda: now[0]))
    request = EvalRequest(code="1", together=Appointment(meeting="m", ranks=2))
    work = evaluation.Evaluation(request, 40.0, cast("Any", rank), Shared(Settings()))
    work._meeting = rank.meeting
    assert rank.meeting.agree(place(2), 1)
    rank.go_to(9)
    rank.wait_held(3)
    now[0] = waited_s
    job = work.told(EvalJob(number=1, who="", code="1", state="waiting", age_s=0.0))
    assert job.held == (place(2) if is_told else None)


def test_a_command_that_knows_no_word_to_begin_needs_none(rank: Rank) -> None:
    """Of a version before there was one: the code begins at the place."""
    assert rank.meeting.agree(place(2, waits=False), 1)
    rank.go_to(9)
    assert rank.meeting.settled.wait(DEADLINE_S)
    assert rank.meeting.has_begun
    rank.wait_held(3)
