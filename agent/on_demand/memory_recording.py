"""Recordings of allocations: on, off, and what becomes of them.

Rules of this file: where the program uses an accelerator, that one's allocator keeps the history,
with no end of its own. On the CPU torch.profiler does, in the training thread and for some steps,
by way of `Profiles`, since there can be one profiler in a process. The result is a file in the run
folder and nothing else: the agent is told no path, and writes nowhere but there. What the person
asks for is written where he is, with his rights, on his machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from ...errors import BadRequest, InternalError, ProfileRefused
from ...messages.about.allocation import MOST_ENTRIES, RecordRequest, RecordStatus, SnapshotRequest
from ...messages.common import MOST_STEPS
from ...rundir.folders import ProcessFolder
from ..agent_threads import in_thread
from ..recording.no_training import NoTraining, watched
from ..recording.source import SourceReport
from ..recording.training import TorchTraining
from ..sources.accelerator import CudaHistory
from ..sources.allocation.allocations import AllocationSteps
from ..sources.allocation.device_history import DeviceHistory
from .profiling import DEFAULT_TIMEOUT_S, Profiles, Profiling

_ENDLESS_S = 86_400.0


class MemoryRecordings:
    """Takes requests, and hands back futures of the file with the recording."""

    def __init__(
        self,
        profiles: Profiles,
        training: Callable[[], TorchTraining | NoTraining],
        folder: ProcessFolder,
    ) -> None:
        self._profiles = profiles
        self._training = training
        self._path = folder.allocations
        self._lock = threading.Lock()
        self._keeper = CudaHistory()
        self._history: DeviceHistory | None = None
        self._recorder: AllocationSteps | None = None
        self._profiling: Profiling | None = None
        self._is_taken = True

    def change(self, request: RecordRequest) -> Future[RecordStatus]:
        """Begin or end to record, which may take long.

        Raises, by the future:
            BadRequest: It asks for no number of steps or events.
            ProfileRefused: The ends of steps cannot be seen here.
            Busy: A profile is under way.
        """
        return in_thread("memory", lambda: self._changed(request))

    def _changed(self, request: RecordRequest) -> RecordStatus:
        """Begin or end, here and now."""
        if request.state not in {"on", "off"}:
            raise BadRequest("the recording can be turned on or off")
        _check(request.steps, request.entries)
        training = watched(self._training(), ProfileRefused)
        with self._lock:
            if request.state == "off":
                self._end()
            elif self._keeper.is_in_use():
                self._begin_history(training, request.entries)
            elif not self._is_recording():
                self._begin(training, request.steps, request.entries, _ENDLESS_S)
                self._is_taken = False
        return self.status()

    def snapshot(self, request: SnapshotRequest) -> tuple[Future[Path], Callable[[], None]]:
        """What has been recorded, once it is; else what the next steps do.

        Returns:
            What gets the path of the file, and what ends that which was begun for it alone.

        Raises:
            BadRequest: It asks for no number of steps or events.
            ProfileRefused: The ends of steps cannot be seen here.
            Busy: A profile is under way.
        """
        _check(request.steps, request.entries)
        training = watched(self._training(), ProfileRefused)
        with self._lock:
            if self._keeper.is_in_use():
                self._history = self._history or self._new_history(training)
                return in_thread("memory", self._save_history), _nothing
            if self._is_taken or self._profiling is None or not self._is_of_use():
                limit_s = request.timeout_s or DEFAULT_TIMEOUT_S
                first = request.first_step
                profiling = self._begin(training, request.steps, request.entries, limit_s, first)
                return profiling.future, profiling.cancel
            if self._recorder is not None:
                self._recorder.finish()
            self._is_taken = True
            return self._profiling.future, _nothing

    def status(self) -> RecordStatus:
        """How it stands."""
        if self._history is not None:
            state = "running" if self._history.is_on else "off"
            return RecordStatus(how="allocator", state=state, entries=self._history.entries)
        recorder, profiling = self._recorder, self._profiling
        if recorder is None or profiling is None:
            return RecordStatus(how="profiler", state="off")
        state = recorder.state
        if profiling.is_over() and state == "ending":
            state = "off" if self._is_taken else "recorded"
        return RecordStatus(
            how="profiler",
            state="off" if state == "cancelled" else state,
            steps=recorder.steps,
            done=recorder.done,
            entries=recorder.entries,
            step_s=recorder.step_s,
            plain_step_s=recorder.plain_step_s,
            reason=recorder.reason or None,
        )

    def report(self) -> SourceReport | None:
        """How it stands, for the list of all that records; None where nothing was recorded."""
        status = self.status()
        if self._history is None and self._recorder is None:
            return None
        is_on = status.state in {"waiting", "running", "ending"}
        cost_s = None
        if status.step_s is not None and status.plain_step_s is not None:
            cost_s = max(0.0, status.step_s - status.plain_step_s)
        note = "recorded, and not fetched yet" if status.state == "recorded" else None
        return SourceReport("allocations", "on" if is_on else "off", cost_s, 0, note)

    def close(self) -> None:
        """End what is on; `Profiles` ends its own."""
        if self._history is not None:
            self._history.stop()

    def _is_of_use(self) -> bool:
        """Whether the last recording has come to something, or will."""
        return self._recorder is not None and self._recorder.state in {"running", "ending"}

    def _is_recording(self) -> bool:
        return self._profiling is not None and not self._profiling.is_over()

    def _begin(
        self,
        training: TorchTraining,
        steps: int,
        entries: int,
        limit_s: float,
        first_step: int | None = None,
    ) -> Profiling:
        """Record some steps on the CPU."""
        recorder = AllocationSteps(
            steps,
            training.step,
            recording=training.recording,
            entries=entries,
            first_step=first_step,
        )

        def save() -> Path:
            return self._written(recorder)

        profiling = self._profiles.begin(Profiling(recorder, training, save, limit_s))
        self._recorder, self._profiling = recorder, profiling
        training.on_demand["allocations"] = self.report
        return profiling

    def _begin_history(self, training: TorchTraining, entries: int) -> None:
        """Have the accelerator's allocator keep the history."""
        if self._history is None:
            self._history = self._new_history(training)
        if not self._history.is_on:
            self._history.start(entries)
            training.safe_points.begin_job(self._history)
            training.on_demand["allocations"] = self.report

    def _new_history(self, training: TorchTraining) -> DeviceHistory:
        return DeviceHistory(self._keeper, training.step)

    def _end(self) -> None:
        """Record no more; what was recorded stays, for the tables and a snapshot."""
        try:
            if self._history is not None and self._history.is_on:
                self._save_history()
        finally:  # it ends, also where there is no room to keep it
            self.close()
            if self._recorder is not None:
                self._recorder.finish()

    def _save_history(self) -> Path:
        """Write what the accelerator's allocator remembers."""
        assert self._history is not None
        return self._written(self._history)

    def _written(self, what: AllocationSteps | DeviceHistory) -> Path:
        """Save it in its place.

        Raises:
            InternalError: The file cannot be written.
        """
        try:
            what.save(self._path)
        except OSError as error:
            raise InternalError(f"the recording cannot be written: {error.strerror}") from None
        return self._path


def _nothing() -> None:
    """What is recorded for others, too, goes on."""


def _check(steps: int, entries: int) -> None:
    """Whether the numbers are possible.

    Raises:
        BadRequest: They are not.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise BadRequest(f"the number of steps must be from 1 to {MOST_STEPS}")
    if not 1 <= entries <= MOST_ENTRIES:
        raise BadRequest(f"the number of events must be from 1 to {MOST_ENTRIES:,}")
