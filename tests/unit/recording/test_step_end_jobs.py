"""Jobs that the training thread runs at the ends of steps: each to its end, none to any harm."""

from __future__ import annotations

import sys
import threading
from types import FrameType

import pytest

from probing.agent.recording import safe_points
from probing.agent.recording.safe_points import AGENT_THREAD_PREFIX, SafePoints

pytestmark = pytest.mark.anypython


class Countdown:
    """Is done after some steps; fails at the step that it is told to."""

    def __init__(self, steps: int, *, fails_at: int = -1) -> None:
        self.left = steps
        self.fails_at = fails_at
        self.reasons: list[str] = []

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        self.left -= 1
        if self.left == self.fails_at:
            raise ValueError("no")
        return self.left == 0

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        self.reasons.append(reason)


def test_a_job_runs_until_it_is_done() -> None:
    """It runs once a step; afterwards a step's end costs one look at a flag again."""
    points, job = SafePoints(), Countdown(2)
    points.step_ended()
    points.begin_job(job)
    assert points.waiting
    points.step_ended()
    assert (job.left, points.waiting) == (1, True)
    points.step_ended()
    points.step_ended()
    assert (job.left, points.waiting) == (0, False)


def test_a_job_that_fails_fails_nobody_else() -> None:
    """The step goes on, the job is told why and runs no more, and others still do."""
    points, bad, good = SafePoints(), Countdown(3, fails_at=2), Countdown(2)
    points.begin_job(bad)
    points.begin_job(good)
    points.step_ended()
    points.step_ended()
    assert bad.reasons == ["ValueError: no"]
    assert (bad.left, good.left, points.waiting) == (2, 0, False)


def test_however_many_fail_the_others_run_to_their_end() -> None:
    """Over the life of a process many may: each is told, and no other is dropped."""
    points, good = SafePoints(), Countdown(6)
    points.begin_job(good)
    for _ in range(5):
        bad = Countdown(3, fails_at=2)
        points.begin_job(bad)
        points.step_ended()
        assert bad.reasons == ["ValueError: no"]
    points.step_ended()
    assert (good.left, good.reasons, points.waiting) == (0, [], False)


def test_a_handler_amid_a_jobs_end_may_call_a_model() -> None:
    """The call comes by the safe point as any other does, and waits for nobody."""
    points, job, called = SafePoints(), Countdown(1), list[bool]()

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code is SafePoints._settle.__code__:
            sys.setprofile(None)
            points.root_called()
            called.append(True)

    points.begin_job(job)
    sys.setprofile(profile)
    try:
        points.end_job(job)
    finally:
        sys.setprofile(None)
    assert (called, points.waiting) == ([True], False)


def test_a_job_can_be_ended() -> None:
    """Before it is done, and twice."""
    points, job = SafePoints(), Countdown(2)
    points.begin_job(job)
    points.end_job(job)
    points.end_job(job)
    points.step_ended()
    assert (job.left, points.waiting) == (2, False)


def test_calls_of_roots_count_until_an_optimizer_steps() -> None:
    """A process without an optimizer has its steps' ends before the next call of its root."""
    points, job = SafePoints(), Countdown(9)
    points.begin_job(job)
    points.root_called()
    assert job.left == 8
    points.stepping = True
    points.root_called()
    assert job.left == 8


class AtWork:
    """Torch as the test says it is."""

    def __init__(self, *, here: bool = False, elsewhere: bool = False) -> None:
        self.here, self.elsewhere = here, elsewhere

    def is_here(self) -> bool:
        """See `safe_points.AtWork`."""
        return self.here

    def is_elsewhere(self) -> bool:
        """See `safe_points.AtWork`."""
        return self.elsewhere

    def is_transformed(self) -> bool:
        """See `safe_points.AtWork`."""
        return False


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_no_job_runs_and_nobody_is_let_in_within_a_backward_pass(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this thread or in another one; when it is over, both are."""
    monkeypatch.setattr(safe_points, "_OTHERS_PATIENCE_S", 0.01)
    points, job = SafePoints(), Countdown(2)
    points.at_work = AtWork(**{place: True})
    points.begin_job(job)
    visit = points.request(0.0)
    points.step_ended()
    assert (job.left, visit.is_held()) == (2, False)
    points.at_work = AtWork()
    points.step_ended()
    assert (job.left, visit.is_held()) == (1, True)


@pytest.mark.parametrize("way", ["step_ended", "torch_called"])
def test_a_hold_whose_time_is_up_does_not_begin_anew(way: str) -> None:
    """Whoever asked for it may be stuck, and take it out never."""
    points = SafePoints()
    visit = points.request(0.05)
    if way == "torch_called":
        visit.close_way_back()
    getattr(points, way)()
    assert (points.waiting, points.closed) == (False, False)
    getattr(points, way)()
    assert visit.is_held()


def test_other_threads_wait_while_one_is_held() -> None:
    """What they would begin begins as soon as the visit is over."""
    points, passed = SafePoints(), threading.Event()
    visit = points.request(60.0)
    held = threading.Thread(target=points.step_ended)
    held.start()
    visit.wait_held(60.0)

    def go_by() -> None:
        points.torch_called()
        passed.set()

    other = threading.Thread(target=go_by)
    other.start()
    assert not passed.wait(0.05)
    points.withdraw(visit)
    assert passed.wait(60.0)
    held.join()
    other.join()
    assert not points.closed


def test_a_pass_within_a_pass_waits_for_nobody_who_waits_for_it() -> None:
    """Else the thread at the safe point and the one in the pass would wait for each other."""
    points = SafePoints()
    points.at_work = AtWork(here=True)
    with points.others_held_up():
        other = threading.Thread(target=points.torch_called)
        other.start()
        other.join(60.0)
        assert not other.is_alive()


def test_the_agents_own_steps_do_not_count() -> None:
    """Code sent by eval may step an optimizer; that is no end of a step of the training."""
    points, job = SafePoints(), Countdown(2)
    points.begin_job(job)
    thread = threading.Thread(target=points.step_ended, name=f"{AGENT_THREAD_PREFIX}eval")
    thread.start()
    thread.join()
    assert job.left == 2


def test_a_job_that_cannot_wait_runs_as_a_model_is_called() -> None:
    """Also while no step ends; one that can does not."""
    points, job, other = SafePoints(), Countdown(2), Countdown(2)
    points.stepping = True
    points.begin_job(job)
    points.begin_job(other)
    points.root_called()
    assert job.left == 2
    points.hurry(job)
    points.root_called()
    points.root_called()
    points.root_called()
    assert (job.left, other.left) == (0, 2)
    points.end_job(other)
    assert not points.waiting
