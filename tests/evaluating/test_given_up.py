"""What nobody waits for any more: it changes nothing, and holds nobody up."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent.actions import place
from probing.agent.actions.pending import PendingAction
from probing.agent.audit.request_log import Sender
from probing.agent.eval.evaluation import Evaluation
from probing.agent.eval.repetition import Repetition
from probing.agent.eval.run import Shared
from probing.agent.on_demand.fitting import Fitting
from probing.agent.recording.no_training import NoTraining
from probing.agent.recording.safe_points import SafePoints, Visit
from probing.errors import ActRefused, InternalError, NoThread
from probing.messages.about.act import Lr
from probing.messages.about.eval import RepeatRequest
from probing.messages.about.fit import FitRequest
from probing.messages.common import EvalRequest
from probing.settings import Settings
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython


def ended(_: object) -> None:
    """Nobody wants to know how code ended."""


@pytest.mark.parametrize("moment", ["before its turn", "at the place"])
def test_an_action_that_is_given_up_is_not_applied(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where a step ends before its thread has looked whether somebody waits."""
    monkeypatch.setattr(place, "_POLL_S", DEADLINE_S)
    points, applied, refused = SafePoints(), threading.Event(), threading.Event()
    kept = PendingAction(
        number=2, name="lr", arguments="", sender=Sender(), asked=Lr(), limit_s=DEADLINE_S
    )
    scene: Any = SimpleNamespace(training=SimpleNamespace(safe_points=points, thread_id=int))

    def act() -> None:
        with pytest.raises(ActRefused, match="who asked has gone"):
            place.wait_applied(kept, scene, applied.set, time.monotonic() + DEADLINE_S)
        refused.set()

    kept.is_cancelled = moment == "before its turn"
    thread = threading.Thread(target=act)
    thread.start()
    wait_until(lambda: bool(points.looks) or refused.is_set(), "its waiting for a step")
    kept.is_cancelled = True
    points.step_ended()
    points.step_ended()
    thread.join(DEADLINE_S)
    assert (refused.is_set(), applied.is_set(), points.waiting) == (True, False, False)


def test_code_that_is_given_up_and_cannot_be_interrupted_is_left_behind() -> None:
    """The training goes on, and `jobs` says what has become of the code."""
    training, released = NoTraining(), threading.Lock()
    training.is_moving = lambda: True
    shared = Shared(Settings())
    shared.names["released"] = released
    request = EvalRequest(code="released.acquire()", timeout_s=DEADLINE_S)
    evaluation = Evaluation(request, DEADLINE_S, training, shared)
    evaluation.leave_behind()
    assert not evaluation.is_overdue
    code = threading.Thread(target=evaluation.work, args=(ended,))
    step = threading.Thread(target=training.safe_points.step_ended, daemon=True)
    with released:
        code.start()
        wait_until(lambda: training.safe_points.waiting, "its waiting for a step", DEADLINE_S / 4)
        step.start()
        wait_until(evaluation.place, "the code", DEADLINE_S / 4)
        evaluation.leave_behind()
        step.join(DEADLINE_S / 2)
        assert (evaluation.is_overdue, step.is_alive()) == (True, False)
        assert not training.safe_points.waiting
    code.join(DEADLINE_S)
    assert not code.is_alive()


def test_a_prediction_that_has_ended_holds_nobody() -> None:
    """A step may have been seen just then: its end asks for no hold any more."""
    training: Any = SimpleNamespace(safe_points=SafePoints())
    fitting = Fitting(FitRequest(batch=2), training, None, lambda _: None)
    fitting._leave()
    fitting._request_hold()
    assert not training.safe_points.waiting


class SlowToAsk(SafePoints):
    """A training whose thread loses the interpreter just before it asks to stand still."""

    def __init__(self) -> None:
        super().__init__()
        self.is_about_to_ask, self.may_ask = threading.Event(), threading.Event()

    def request(self, hold_s: float) -> Visit:
        """See `SafePoints`."""
        self.is_about_to_ask.set()
        assert self.may_ask.wait(DEADLINE_S)
        return super().request(hold_s)


@pytest.mark.parametrize("what", ["no thread", "a fault"])
def test_a_repetition_that_cannot_run_fails_its_client_alone(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script's own hook for threads that fail hears nothing of it."""
    training, told, hooked = NoTraining(), list[Any](), list[Any]()
    request = RepeatRequest(code="1", every=1, times=5)

    def tell(item: Any) -> bool:
        told.append(item)
        return True

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    repetition = Repetition(request, DEADLINE_S / 4, training, Shared(Settings()), tell)
    code = threading.Thread(target=repetition.work, args=(ended,))
    monkeypatch.setattr(threading, "excepthook", hooked.append)
    code.start()
    wait_until(lambda: training.safe_points.waiting, "its waiting for a step", DEADLINE_S / 4)
    if what == "no thread":
        monkeypatch.setattr(threading.Thread, "start", refuse)
    else:
        monkeypatch.setattr(training, "use_device", refuse)
    training.safe_points.step_ended()
    code.join(DEADLINE_S / 4)
    assert not code.is_alive()
    assert [type(item) for item in told] == [
        NoThread if what == "no thread" else InternalError,
        type(None),
    ]
    assert (hooked, training.safe_points.waiting) == ([], False)


def test_a_repetition_that_ends_as_a_step_does_holds_nobody() -> None:
    """The training goes on at once, not after the code's time limit."""
    points = SlowToAsk()
    training: Any = SimpleNamespace(safe_points=points)
    request = RepeatRequest(code="1", every=1, times=5)
    repetition = Repetition(request, DEADLINE_S, training, Shared(Settings()), lambda _: True)
    code = threading.Thread(target=repetition.work, args=(ended,))
    code.start()
    wait_until(lambda: points.waiting, "its waiting for a step")
    step = threading.Thread(target=points.step_ended, daemon=True)
    step.start()
    assert points.is_about_to_ask.wait(DEADLINE_S)
    repetition.cancel("given up")
    code.join(DEADLINE_S)
    points.may_ask.set()
    step.join(DEADLINE_S / 2)
    assert (code.is_alive(), step.is_alive(), points.waiting) == (False, False, False)


def test_a_repetition_that_does_not_end_at_its_limit_is_left_behind() -> None:
    """Its client is told, `jobs` says so, and the training goes on."""
    training, released, told = NoTraining(), threading.Lock(), list[Any]()
    shared = Shared(Settings())
    shared.names["released"] = released

    def tell(item: Any) -> bool:
        told.append(item)
        return not repetition.is_overdue

    request = RepeatRequest(code="released.acquire(); released.release()", every=1, times=5)
    repetition = Repetition(request, DEADLINE_S, training, shared, tell)
    assert not repetition.is_late()
    repetition.leave_behind()
    assert not repetition.is_overdue
    code = threading.Thread(target=repetition.work, args=(ended,))
    with released:
        code.start()
        wait_until(lambda: training.safe_points.waiting, "its waiting for a step", DEADLINE_S / 4)
        step = threading.Thread(target=training.safe_points.step_ended, daemon=True)
        step.start()
        wait_until(repetition.place, "the code", DEADLINE_S / 4)
        repetition._limit_s = 0.1  # not before: the wait for a step has the same limit
        wait_until(repetition.is_late, "its being late", DEADLINE_S / 4)
        error = repetition.overdue()
        step.join(DEADLINE_S / 2)
        assert (repetition.is_overdue, step.is_alive()) == (True, False)
        assert "has run for 0.1 s and cannot be interrupted where it is" in error.message
        assert "It is at <module> (<eval>:1)" in error.message
    code.join(DEADLINE_S)
    assert not code.is_alive()
    assert len(told) == 2, "the run that was late, and the end"
