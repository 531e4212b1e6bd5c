"""Profiles of some training steps, one at a time.

Rules of this file: each runs in a thread of its own, which waits for the training thread to do the
work and then writes the trace; nothing is read or counted here, for that is the business of who
asked. A client that goes away ends it, and the profiler is off before the next one may begin.
"""

from __future__ import annotations

import gzip
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ...errors import BadRequest, InternalError, ProfileRefused, ProfileTimedOut
from ...messages.common import MOST_STEPS, ProfileProgress, ProfileRequest
from ...rundir.folders import ProcessFolder
from ..agent_threads import OneAtATime, ThreadJob
from ..recording.no_training import NoTraining, watched
from ..recording.training import TorchTraining
from ..sources.calls.profiler import StepsProfile

DEFAULT_TIMEOUT_S = 30.0
_POLL_S = 0.1
_END_S = 2.0
_LEFT = "the agent left the process, or who asked went away"


class Profiles(OneAtATime["Profiling"]):
    """Takes requests, and hands back futures of the file with the trace."""

    def __init__(
        self, training: Callable[[], TorchTraining | NoTraining], folder: ProcessFolder
    ) -> None:
        super().__init__()
        self._training = training
        self._folder = folder

    def submit(self, request: ProfileRequest) -> Profiling:
        """Start on a request.

        Raises:
            BadRequest: It asks for no number of steps.
            ProfileRefused: The ends of steps cannot be seen here.
            Busy: Another profile is under way.
        """
        if not 1 <= request.steps <= MOST_STEPS:
            raise BadRequest(f"the number of steps must be from 1 to {MOST_STEPS}")
        training = watched(self._training(), ProfileRefused)
        profile = StepsProfile(request.steps, training.step, training.clock_offset_ns())
        path, limit_s = self._folder.profile, request.timeout_s or DEFAULT_TIMEOUT_S
        return self.begin(Profiling(profile, training, lambda: save_trace(profile, path), limit_s))

    def progress(self) -> ProfileProgress:
        """How far the profile under way is."""
        profiling = self.job
        if profiling is None or profiling.future.done() or not profiling.is_of_time:
            return ProfileProgress(state="idle")
        return profiling.progress()


class Profiling(ThreadJob[Path]):
    """One profile on its way from request to file.

    Args:
        save: Writes the file once the profiler is off.
        limit_s: How long any one step may take.

    Attributes:
        future: Gets the path of the file, or an error.
        is_of_time: Whether it is a profile of what the time is spent on.
    """

    name = "profile"

    def __init__(
        self,
        profile: StepsProfile,
        training: TorchTraining,
        save: Callable[[], Path],
        limit_s: float,
    ) -> None:
        super().__init__()
        self.is_of_time = type(profile) is StepsProfile
        self._limit_s = min(limit_s, 86_400.0)
        self._safe_points = training.safe_points
        self._profile = profile
        self._save = save
        self._is_closed = threading.Event()

    def is_over(self) -> bool:
        """Whether the profiler is off, and nothing of it remains to be done."""
        return super().is_over() and self._profile.over.is_set()

    def progress(self) -> ProfileProgress:
        """How far it is."""
        profile = self._profile
        return ProfileProgress(state=profile.state, steps=profile.steps, done=profile.done)

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._profile.cancel()
        self._safe_points.hurry(self._profile)

    def close(self) -> None:
        """The agent goes: end it, and wait for that as long as may be."""
        self.cancel()
        if not self._profile.over.wait(_END_S):
            self._profile.end_later()
        self._is_closed.set()
        super().close()

    def _work(self) -> Path:
        """See `ThreadJob`."""
        profile = self._profile
        try:
            profile.prepare()
            if not profile.over.is_set():
                self._safe_points.begin_job(profile)
            self._wait()
            return self._save()
        except BaseException:
            self.cancel()
            raise

    def _leave(self) -> None:
        """See `ThreadJob`."""
        while not (self._profile.over.wait(_POLL_S) or self._is_closed.is_set()):
            pass
        self._safe_points.end_job(self._profile)

    def _wait(self) -> None:
        """Wait for the end of the last step.

        Raises:
            ProfileRefused: The program has a profiler of its own.
            ProfileTimedOut: A step does not end.
        """
        profile = self._profile
        while not profile.over.wait(_POLL_S):
            if self._is_closed.is_set():
                raise ProfileRefused(_LEFT)
            if profile.state == "waiting" and self._safe_points.obstacle:
                raise ProfileRefused(self._safe_points.obstacle)
            if time.monotonic() - profile.moved_s > self._limit_s:
                raise ProfileTimedOut(self._limit_s, self._what_is_lost())
        if profile.state == "refused":
            raise ProfileRefused(profile.reason, help=_WAY_OUT)
        if profile.state == "cancelled":
            raise ProfileRefused(_LEFT)

    def _what_is_lost(self) -> str:
        """What a step that does not end has come to."""
        profile = self._profile
        if profile.state == "waiting":
            return "nothing was profiled"
        return (
            f"the profile was given up after {profile.done} of {profile.steps} steps; the profiler"
            " is turned off as a model is called next, or the step in progress ends"
        )


def save_trace(profile: StepsProfile, path: Path) -> Path:
    """Write a trace, gzipped, in place of that of the profile before."""
    plain = path.with_suffix(".part")
    packed = path.with_suffix(".new")
    try:
        profile.save(plain)
        if not plain.exists():  # torch raises nothing
            raise InternalError(_UNWRITTEN)
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(packed, path)
    except OSError as error:
        packed.unlink(missing_ok=True)
        raise InternalError(f"the profile cannot be written: {error.strerror}") from None
    finally:
        plain.unlink(missing_ok=True)
        plain.with_name(f"{plain.name}.tmp").unlink(missing_ok=True)  # where torch writes it first
    return path


_UNWRITTEN = (
    "the profile cannot be written: torch's profiler could not write its file (is the disk full?)"
)
_WAY_OUT = (
    "There can be one profiler in a process. Ask again when the program's own is done;"
    " `profile --sampling 100` works beside it."
)
