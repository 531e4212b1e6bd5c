"""A process that had no agent when it was looked for: its stacks can be had, from outside.

Rules of this file: runs at the operator's side; what needs an agent is asked of the one that has
come since, by `attach` or otherwise. Where there is none, it is an error that says which way there
is to one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..attach.injectors.names import AUTO
from ..errors import AttachFailed, AttachWaiting, NoSuchProcess, NotProbed, NotPython, ProbingError
from ..linux import process
from ..messages import common as wire
from ..messages.labels import LabelsAnswer
from ..messages.limits import DEFAULT_TIMEOUT_S
from ..reach import ladder
from ..reach.endpoint import Local, resolve
from ..rundir.attach_order import AttachFiles, reason_of
from ..rundir.folders import directory_of, from_env
from .local import LocalProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..allocations import Recording
    from ..attach.attach import Attached
    from ..messages.act import Act, Acts, Asked, Commit, Prepared
    from ..messages.allocation import RecordStatus
    from ..messages.eval import Appointment, Completions, EvalCommit, EvalJobs
    from ..messages.fit import FitAnswer, FitRequest
    from ..profiling import Samples
    from ..profiling.sampling import Tell as TellSeconds
    from ..sql.answer import Answer
    from .profile_client import StepsProfile, Tell as TellSteps
    from .recording_client import Tell as TellRecording


class StrangeProcess:
    """A process that had no agent when it was looked for."""

    def __init__(self, label: str, pid: int, timeout_s: float) -> None:
        self.label = label
        self._pid = pid
        self._timeout_s = timeout_s
        self._notes: list[str] = []
        self._agent: LocalProcess | None = None

    def backtrace(self, *, native: bool = False, locals: bool = False) -> wire.Backtrace:
        """See `Process`."""
        if self._agent is not None:
            return self._agent.backtrace(native=native, locals=locals)
        return ladder.backtrace_of_stranger(self._pid, self._notes, native=native, locals=locals)

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """See `Process`."""
        return self._found().query(sql, timeout_s=timeout_s, max_rows=max_rows)

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
            from ..attach.unsafe_eval import eval_in_holder

            return eval_in_holder(self._pid, code, limit_s=timeout_s or DEFAULT_TIMEOUT_S)
        return self._found().eval(
            code,
            timeout_s=timeout_s,
            now=now,
            thread=thread,
            frame=frame,
            session=session,
            assign=assign,
            together=together,
        )

    def commit_eval(self, commit: EvalCommit) -> None:
        """See `Process`."""
        self._found().commit_eval(commit)

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
        return self._found().eval_steps(
            code,
            every=every,
            times=times,
            timeout_s=timeout_s,
            thread=thread,
            frame=frame,
            assign=assign,
        )

    def jobs(self) -> EvalJobs:
        """See `Process`."""
        return self._found().jobs()

    def cancel(self, number: int) -> EvalJobs:
        """See `Process`."""
        return self._found().cancel(number)

    def complete(self, text: str, *, session: str | None = None) -> Completions:
        """See `Process`."""
        return self._found().complete(text, session=session)

    def act(self, asked: Asked, *, timeout_s: float | None = None) -> Act:
        """See `Process`."""
        return self._found().act(asked, timeout_s=timeout_s)

    def prepare_act(self, asked: Asked, *, ranks: int, timeout_s: float | None = None) -> Prepared:
        """See `Process`."""
        return self._found().prepare_act(asked, ranks=ranks, timeout_s=timeout_s)

    def commit_act(self, commit: Commit) -> None:
        """See `Process`."""
        self._found().commit_act(commit)

    def acts(self) -> Acts:
        """See `Process`."""
        return self._found().acts()

    def live(
        self, table: str, *, wait_s: float | None = None, patient: bool = False
    ) -> wire.LiveRows:
        """See `Process`."""
        return self._found().live(table, wait_s=wait_s, patient=patient)

    def profile(
        self, steps: int = 3, *, timeout_s: float | None = None, tell: TellSteps | None = None
    ) -> StepsProfile:
        """See `Process`."""
        return self._found().profile(steps, timeout_s=timeout_s, tell=tell)

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
        from ..profiling.sampling import How, sample

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
        return self._found().arm(what, steps, addresses=addresses, cleaning=cleaning)

    def armed(self) -> wire.ArmedAnswer:
        """See `Process`."""
        return self._found().armed()

    def record_allocations(self, state: str, *, steps: int | None = None) -> RecordStatus:
        """See `Process`."""
        return self._found().record_allocations(state, steps=steps)

    def snapshot(
        self,
        *,
        steps: int | None = None,
        timeout_s: float | None = None,
        tell: TellRecording | None = None,
        first_step: int | None = None,
    ) -> Recording:
        """See `Process`."""
        return self._found().snapshot(steps=steps, timeout_s=timeout_s, tell=tell)

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        return self._found().tables()

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> LabelsAnswer:
        """See `Process`."""
        return self._found().labels(samples=samples, timeout_s=timeout_s)

    def fit(self, request: FitRequest) -> FitAnswer:
        """See `Process`."""
        return self._found().fit(request)

    def status(self) -> wire.Card:
        """See `Process`."""
        return self._found().status()

    def settings(self) -> wire.SettingsAnswer:
        """See `Process`."""
        return self._found().settings()

    def set(self, name: str, value: str) -> wire.SettingsAnswer:
        """See `Process`."""
        return self._found().set(name, value)

    def attach(self, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
        """See `Process`."""
        from ..attach.attach import attach

        return attach(self._pid, how=how, timeout_s=timeout_s)

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """See `Process`."""
        try:
            agent = self._found()
        except NotProbed:
            raise NotProbed(self._pid, "it has no probing agent that could leave it") from None
        return agent.detach(keep_record=keep_record)

    def notes(self) -> list[str]:
        """See `Process`."""
        return [*self._notes, *(self._agent.notes() if self._agent is not None else ())]

    def _found(self) -> LocalProcess:
        """The process with the agent that it has got.

        Raises:
            ProbingError: It has none.
        """
        if self._agent is None:
            place = resolve(self._pid, from_env())
            if not isinstance(place, Local):
                raise self._no_agent()
            self._agent = LocalProcess(self.label, place.folder, self._timeout_s)
        return self._agent

    def _no_agent(self) -> ProbingError:
        """The error of everything that needs an agent."""
        if not process.is_python(self._pid):
            return NotPython(self._pid)
        started = process.start_time(self._pid)
        if started is None:
            return NoSuchProcess(str(self._pid))
        attach = AttachFiles(directory_of(self._pid).folder_for(self._pid, started)).read()
        if attach is not None and attach.stage == "failed":
            return AttachFailed(self._pid, reason_of(attach.failure))
        if attach is not None and (attach.is_at_work or attach.stage != "ordered"):
            why = ladder.who_holds_gil(self._pid) if attach.stage == "injected" else None
            return AttachWaiting(self._pid, why or attach.describe())
        if attach is not None:
            return NotProbed(self._pid, attach.describe())
        owner = process.owner(self._pid)
        if owner not in (None, os.getuid()):
            return NotProbed(self._pid, f"it is user {owner}'s, whose agents are not ours to ask")
        return NotProbed(self._pid)
