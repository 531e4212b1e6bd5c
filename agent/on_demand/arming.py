"""What is recorded on demand in the next steps of the training, one of each kind at a time.

Rules of this file: arming returns at once, and the work is done in the training thread; a client
asks how far it is. What is armed ends by itself, so nobody needs to stay.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ArmRefused, BadRequest
from ...messages.common import ARMABLE, CLEAN, MOST_STEPS, REFERRERS, ArmedAnswer, ArmRequest
from ...script.marks import Cleaning
from ..recording.no_training import NoTraining, watched
from ..recording.training import TorchTraining

if TYPE_CHECKING:
    from .armed_job import ArmedJob

_END_S = 2.0
MOST_ADDRESSES = 100
"""How many storages may be asked about at once."""


class Arming:
    """Begins, shows and ends what is armed."""

    def __init__(self, training: Callable[[], TorchTraining | NoTraining]) -> None:
        self._training = training
        self._lock = threading.Lock()
        self._jobs: dict[str, ArmedJob] = {}
        self._count = 0

    def arm(self, request: ArmRequest) -> None:
        """Begin; with 0 steps, end.

        Raises:
            BadRequest: There is no such thing, or not for so many steps.
            ArmRefused: It is armed already, or steps are not seen here.
        """
        if request.what not in {*ARMABLE, REFERRERS, CLEAN}:
            raise BadRequest(f"what can be armed is {' or '.join(ARMABLE)}, not {request.what!r}")
        is_asking = request.what == REFERRERS and request.steps > 0
        if is_asking and not 1 <= len(request.addresses) <= MOST_ADDRESSES:
            raise BadRequest(f"1 to {MOST_ADDRESSES} addresses of storages can be asked about")
        unknown = {*request.cleaning} - {*Cleaning._fields}
        if unknown or (request.what == CLEAN and request.steps and not request.cleaning):
            raise BadRequest(f"what can be cleaned up is {', '.join(Cleaning._fields)}")
        if not 0 <= request.steps <= MOST_STEPS:
            raise BadRequest(f"the number of steps must be from 1 to {MOST_STEPS}")
        with self._lock:
            job = self._jobs.get(request.what)
            if not request.steps:
                if job is not None:
                    job.end()
                return
            training = watched(self._training(), ArmRefused, help_without="")
            if job is not None and not job.is_over:
                raise ArmRefused(f"{job.what} is armed already: {job.done} of {job.steps} steps")
            self._begin(request, training)

    def armed(self) -> ArmedAnswer:
        """The last of each kind, and how far it is."""
        obstacle, answers = self._training().safe_points.obstacle, []
        for job in list(self._jobs.values()):
            armed = job.armed()
            if obstacle and armed.state == "waiting":
                armed = dataclasses.replace(armed, notes=(*armed.notes, obstacle))
            answers.append(armed)
        return ArmedAnswer(armed=tuple(answers))

    def close(self) -> None:
        """End what is armed, and wait a little for the training thread to take its hooks off."""
        for job in list(self._jobs.values()):
            job.end()
        for job in list(self._jobs.values()):
            job.wait_off(_END_S)

    def _begin(self, request: ArmRequest, training: TorchTraining) -> None:
        """Hand the work over to the training thread."""
        recording = training.watched()
        assert recording is not None
        self._count += 1
        job: ArmedJob
        if request.what == "nan":
            from ..sources.numbers.nonfinite.numerics import NumericsWatch

            job = NumericsWatch(recording, training.numerics_ring, request.steps, self._count)
        elif request.what == "leak":
            from ..sources.leaks.watch import LeakWatch

            job = training.leaks = LeakWatch(recording, training.accelerator, request, self._count)
            training.memory_rows.want_all(job)
        elif request.what == REFERRERS:
            from ..sources.leaks.references.referrers import ReferrerSearch

            job = ReferrerSearch(recording, request.addresses, self._count)
            training.referrers = job
        elif request.what == CLEAN:
            from ..sources.memory.cleaning_job import CleaningJob

            cleaning = Cleaning(**dict.fromkeys(request.cleaning, True))
            job = CleaningJob(recording, training.memory_rows, cleaning, self._count)
        else:
            from ..sources.numbers.gradient_steps import GradientSteps

            rows = training.gradient_rows()
            job = GradientSteps(rows, request.steps, self._count)
            rows.arm(job)
        self._jobs[request.what] = job
        training.safe_points.begin_job(job)
