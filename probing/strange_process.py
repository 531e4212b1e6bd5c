"""A process without an agent: only its stacks can be had, from outside.

Rules of this file: runs at the operator's side; what needs an agent is an error that says which way
there is to one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import ladder, process, wire
from .errors import (
    AttachWaiting,
    NoSuchProcess,
    NotProbed,
    NotPython,
    ProbingError,
)
from .injection.names import AUTO
from .labels_wire import LabelsAnswer
from .limits import DEFAULT_TIMEOUT_S
from .rundir import directory_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .act_wire import Act, Acts, Asked, Commit, Prepared
    from .allocation_wire import RecordStatus
    from .allocations import Recording
    from .answer import Answer
    from .attaching import Attached
    from .eval_wire import Appointment, Completions, EvalCommit, EvalJobs
    from .fit import FitAnswer, FitRequest
    from .profile_client import StepsProfile
    from .profile_client import Tell as TellSteps
    from .profiling import Samples
    from .recording_client import Tell as TellRecording
    from .sampling import Tell as TellSeconds


class StrangeProcess:
    """A process without an agent: only its stacks can be had, from outside."""

    def __init__(self, label: str, pid: int) -> None:
        self.label = label
        self._pid = pid
        self._notes: list[str] = []

    def backtrace(self, *, native: bool = False, locals: bool = False) -> wire.Backtrace:
        """See `Process`."""
        return ladder.backtrace_of_stranger(self._pid, self._notes, native=native, locals=locals)

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """See `Process`."""
        raise self._no_agent()

    def eval(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        now: bool = False,
        unsafe: bool = False,
        thread: str | None = None,
        frame: int | None = None,
        session: str | None = None,
        assign: bool = False,
        together: Appointment | None = None,
    ) -> wire.EvalResult:
        """See `Process`."""
        if unsafe:
            from .unsafe_eval import eval_in_holder

            return eval_in_holder(self._pid, code, limit_s=timeout_s or DEFAULT_TIMEOUT_S)
        raise self._no_agent()

    def commit_eval(self, commit: EvalCommit) -> None:
        """See `Process`."""
        raise self._no_agent()

    def eval_steps(
        self,
        code: str,
        *,
        every: int = 1,
        times: int = 1,
        timeout_s: float | None = None,
        thread: str | None = None,
        frame: int | None = None,
        assign: bool = False,
    ) -> Iterator[wire.EvalResult]:
        """See `Process`."""
        raise self._no_agent()

    def jobs(self) -> EvalJobs:
        """See `Process`."""
        raise self._no_agent()

    def cancel(self, number: int) -> EvalJobs:
        """See `Process`."""
        raise self._no_agent()

    def complete(self, text: str, *, session: str | None = None) -> Completions:
        """See `Process`."""
        raise self._no_agent()

    def act(self, asked: Asked, *, timeout_s: float | None = None) -> Act:
        """See `Process`."""
        raise self._no_agent()

    def prepare_act(self, asked: Asked, *, ranks: int, timeout_s: float | None = None) -> Prepared:
        """See `Process`."""
        raise self._no_agent()

    def commit_act(self, commit: Commit) -> None:
        """See `Process`."""
        raise self._no_agent()

    def acts(self) -> Acts:
        """See `Process`."""
        raise self._no_agent()

    def live(
        self, table: str, *, wait_s: float | None = None, patient: bool = False
    ) -> wire.LiveRows:
        """See `Process`."""
        raise self._no_agent()

    def profile(
        self, steps: int = 3, *, timeout_s: float | None = None, tell: TellSteps | None = None
    ) -> StepsProfile:
        """See `Process`."""
        raise self._no_agent()

    def sample(
        self,
        seconds: float = 10.0,
        *,
        hz: int = 100,
        idle: bool = False,
        timeline: bool = False,
        tell: TellSeconds | None = None,
    ) -> Samples:
        """See `Process`."""
        from .sampling import How, sample

        how = How(seconds=seconds, hz=hz, idle=idle, timeline=timeline)
        return sample(self._pid, how, self._notes, tell)

    def arm(
        self,
        what: str,
        steps: int,
        *,
        addresses: tuple[int, ...] = (),
        cleaning: tuple[str, ...] = (),
    ) -> wire.ArmedAnswer:
        """See `Process`."""
        raise self._no_agent()

    def armed(self) -> wire.ArmedAnswer:
        """See `Process`."""
        raise self._no_agent()

    def record_allocations(self, state: str, *, steps: int | None = None) -> RecordStatus:
        """See `Process`."""
        raise self._no_agent()

    def snapshot(
        self,
        *,
        steps: int | None = None,
        timeout_s: float | None = None,
        tell: TellRecording | None = None,
        first_step: int | None = None,
    ) -> Recording:
        """See `Process`."""
        raise self._no_agent()

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        raise self._no_agent()

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> LabelsAnswer:
        """See `Process`."""
        raise self._no_agent()

    def fit(self, request: FitRequest) -> FitAnswer:
        """See `Process`."""
        raise self._no_agent()

    def status(self) -> wire.Card:
        """See `Process`."""
        raise self._no_agent()

    def settings(self) -> wire.SettingsAnswer:
        """See `Process`."""
        raise self._no_agent()

    def set(self, name: str, value: str) -> wire.SettingsAnswer:
        """See `Process`."""
        raise self._no_agent()

    def attach(self, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
        """See `Process`."""
        from .attaching import attach

        return attach(self._pid, how=how, timeout_s=timeout_s)

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """See `Process`."""
        raise NotProbed(self._pid, "it has no probing agent that could leave it")

    def notes(self) -> list[str]:
        """See `Process`."""
        return list(self._notes)

    def _no_agent(self) -> ProbingError:
        """The error of everything that needs an agent."""
        if not process.is_python(self._pid):
            return NotPython(self._pid)
        started = process.start_time(self._pid)
        if started is None:
            return NoSuchProcess(str(self._pid))
        if directory_of(self._pid).folder_for(self._pid, started).attach_script.exists():
            why = ladder.who_holds_gil(self._pid)
            return AttachWaiting(self._pid, why or "no Python code has run in it since")
        owner = process.owner(self._pid)
        if owner not in (None, os.getuid()):
            return NotProbed(self._pid, f"it is user {owner}'s, whose agents are not ours to ask")
        return NotProbed(self._pid)
