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
from probing.agent.eval.repetition import Repetition
from probing.agent.eval.run import Shared
from probing.agent.recording.safe_points import SafePoints, Visit
from probing.errors import ActRefused
from probing.messages.about.act import Lr
from probing.messages.about.eval import RepeatRequest
from probing.settings import Settings
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython


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


def test_a_repetition_that_ends_as_a_step_does_holds_nobody() -> None:
    """The training goes on at once, not after the code's time limit."""
    points = SlowToAsk()
    training: Any = SimpleNamespace(safe_points=points)
    request = RepeatRequest(code="1", every=1, times=5)
    repetition = Repetition(request, DEADLINE_S, training, Shared(Settings()), lambda _: True)
    code = threading.Thread(target=repetition.work)
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
