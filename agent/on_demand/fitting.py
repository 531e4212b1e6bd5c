"""Predicts the peak of memory for another batch, length or number of blocks, without running it.

Rules of this file: one prediction at a time, in a thread of its own. It waits until one whole step
of the training has been seen, then has the training stand still at the end of that step, copies
model and optimizers without their data (`sources.fake_copy`), and runs the step on the copy
(`sources.fake_step`): once as it is, once as asked. It gives up after `LONGEST_HOLD_S`.

The training is held for that, although tensors without data could run beside it: code of a model
may set the random number generators, as activation checkpointing does, and those belong to the
whole process. Held and put back, they are the same afterwards, and so are the losses. For the same
reason nothing is run beside a training that only stands still: it may go on, and that would be
taken back with the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ...errors import BadRequest, FitRefused, FitTimedOut
from ...messages.about.fit import FitAnswer, FitRequest
from ..agent_threads import OneAtATime, ThreadJob
from ..recording.no_training import NoTraining, watched
from ..recording.safe_points import Visit
from ..recording.stillness import Stillness
from ..recording.training import TorchTraining
from ..sources.fit.fake_step import clean_cache
from ..sources.fit.simulation import Simulation
from ..sources.fit.step_look import SeenStep, StepLook
from ..sources.shared.recording import Recording

DEFAULT_TIMEOUT_S = 30.0
_STUCK_S = 5.0
"""How long a training must have stood still: one that goes on may for a second, on a loaded
machine."""
LONGEST_HOLD_S = 20.0
_PUTS_BACK_S = 5.0
"""How much longer it is held at most, so that all is put back by then what the step has changed."""
_POLL_S = 0.05
_OBSTACLE_HELP = "`probing ENDPOINT memory` shows what it takes now."
_KEPT_S = 300.0
"""How long what was seen of a step may serve further predictions."""


class Fits(OneAtATime["Fitting"]):
    """Takes requests, and hands back futures of their answers."""

    def __init__(self, training: Callable[[], TorchTraining | NoTraining]) -> None:
        super().__init__()
        self._training = training
        self._seen: tuple[SeenStep, float] | None = None

    def submit(self, request: FitRequest) -> Fitting:
        """Start on a request.

        Raises:
            BadRequest: It asks for no positive number.
            FitRefused: The steps of the training cannot be seen.
            Busy: Another prediction is under way.
        """
        for name in ("batch", "seq", "layers"):
            value = getattr(request, name)
            if value is not None and value < 1:
                raise BadRequest(f"{name} must be at least 1")
        training = watched(self._training(), FitRefused, unseen="no step is seen")
        return self.begin(Fitting(request, training, self._fresh(), self._keep))

    def _keep(self, seen: SeenStep) -> None:
        """Use what was seen once more."""
        self._seen = (seen, time.monotonic())

    def _fresh(self) -> SeenStep | None:
        """What was seen a short while ago of a model that is still there."""
        if self._seen is None:
            return None
        seen, when = self._seen
        is_fresh = time.monotonic() - when < _KEPT_S and seen.root() is not None
        return seen if is_fresh else None


class Fitting(ThreadJob[FitAnswer]):
    """One prediction on its way from request to answer."""

    name = "fit"

    def __init__(
        self,
        request: FitRequest,
        training: TorchTraining,
        seen: SeenStep | None,
        keep: Callable[[SeenStep], None],
    ) -> None:
        super().__init__()
        self._request = request
        self._training = training
        self._seen = seen
        self._keep = keep
        self._visit: Visit | None = None
        self._is_cancelled = threading.Event()
        self._has_left = False
        self._end = time.monotonic() + (request.timeout_s or DEFAULT_TIMEOUT_S)
        self._hold_end = self._end

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._is_cancelled.set()

    def _work(self) -> FitAnswer:
        """See `ThreadJob`."""
        recording: Any = self._training.watched()
        recording.threads.state.is_apart = True  # nothing that this thread runs is the training's
        return self._predict(recording)

    def _leave(self) -> None:
        """See `ThreadJob`."""
        self._has_left = True
        if self._visit is not None:
            self._training.safe_points.withdraw(self._visit)

    def _predict(self, recording: Recording) -> FitAnswer:
        """See a step, hold the training, and run its copies."""
        if self._seen is None:
            self._see(recording)
        else:
            self._request_hold()
        visit, seen = self._visit, self._seen
        if visit is None or seen is None:
            raise FitTimedOut("no whole step was seen")
        self._wait_held(visit)
        began = time.monotonic()
        self._hold_end = min(self._end, began + LONGEST_HOLD_S)
        simulation = Simulation(seen, self._check)
        with clean_cache():
            now, asked = simulation.run(self._request)
        held_s = time.monotonic() - began
        self._training.safe_points.withdraw(visit)
        self._keep(seen)
        return simulation.answer(now, asked, held_s, self._training.accelerator)

    def _see(self, recording: Recording) -> None:
        """Wait for one whole step.

        Raises:
            FitTimedOut: None came in time.
            FitRefused: It was seen, but not understood.
        """
        is_seen = threading.Event()

        def done() -> None:
            self._request_hold()
            is_seen.set()

        look, stillness = StepLook(recording, done), Stillness(self._training)
        look.begin()
        try:
            while not is_seen.wait(_POLL_S):
                if look.guard.problem is not None:
                    raise FitRefused(f"the step could not be read: {look.guard.problem}")
                obstacle = self._training.safe_points.obstacle or look.obstacle
                if obstacle:
                    raise FitRefused(obstacle, help=_OBSTACLE_HELP)
                is_stuck = stillness.lasts(_STUCK_S)
                if is_stuck and time.monotonic() > self._end - DEFAULT_TIMEOUT_S / 2:
                    raise FitTimedOut("the training makes no progress, so no step is seen")
                what = "training step" if look.passes else "step with a backward pass"
                self._check_time(f"no whole {what} was seen")
        finally:
            look.end()
        self._seen = look.seen

    def _request_hold(self) -> None:
        """Have the training stand still at the end of this step, if the work is still to come."""
        self._visit = self._training.safe_points.request(LONGEST_HOLD_S + _PUTS_BACK_S)
        if self._has_left:  # nobody takes the visit out any more
            self._training.safe_points.withdraw(self._visit)

    def _wait_held(self, visit: Visit) -> None:
        """Wait until the training is held: that it stands still is not enough."""
        while not visit.is_held():
            self._check_time("the training did not reach the end of a step")
            visit.wait_held(_POLL_S)

    def _check(self) -> None:
        """Whether there is time left; called at every part of the work while the training is held.

        Raises:
            FitTimedOut: There is none, or nobody waits any more.
        """
        if self._is_cancelled.is_set() or time.monotonic() > self._hold_end:
            self._check_time("the simulation of two steps did not end")
            raise FitTimedOut(
                f"the simulation of two steps took longer than the {LONGEST_HOLD_S:.0f} s for which"
                " a training is held at most",
                help="Fewer --layers take less; the training goes on in any case.",
            )

    def _check_time(self, what: str) -> None:
        """Raise when nobody waits any more, or the time is up."""
        if self._is_cancelled.is_set():
            raise FitTimedOut("who asked has gone, or the agent goes")
        if time.monotonic() > self._end:
            raise FitTimedOut(f"{what} in time")
