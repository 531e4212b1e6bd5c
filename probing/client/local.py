"""A process of this machine that has an agent, or had one.

Rules of this file: runs at the operator's side. What can be answered from the process's files is
answered from them, without its help; what needs its agent waits for it a limited time; what can be
had from outside instead is, and `notes` says so. Heavy libraries are imported by the method that
needs them.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ..attach.injectors.names import AUTO
from ..errors import ConnectionLost, InternalError, NotProbed, NotProbing, ProcessEnded
from ..messages import common as wire
from ..messages.labels import LabelsAnswer
from ..messages.limits import DEFAULT_TIMEOUT_S, ready_s
from ..reach import ladder
from ..reach.ping import ping
from ..reach.transport import Address
from ..ring import peek as ring_peek
from ..rundir.folders import ProcessFolder
from .providers import providers_for
from .remote import RemoteProcess

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

_ENDING_S = 0.5
"""How long a process may take to end once it has closed its connections."""
_POLL_S = 0.01


class LocalProcess:
    """A process of this machine: its files first, its agent where it must be."""

    def __init__(self, label: str, folder: ProcessFolder, timeout_s: float) -> None:
        self.label = label
        self._folder = folder
        self._timeout_s = timeout_s
        self._agent = RemoteProcess(label, Address(path=folder.socket), timeout_s)
        self._notes: list[str] = []

    @property
    def folder(self) -> ProcessFolder:
        """Its run folder."""
        return self._folder

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """See `Process`; runs in this very process, over the rings of the other."""
        from ..sql.process_columns import OneProcess

        limit_s = timeout_s or self._timeout_s
        providers = providers_for(self._folder, limit_s=limit_s, notes=self._notes)
        engine = OneProcess(providers, self._folder.read_card())
        return engine.run(sql, timeout_s=limit_s, max_rows=max_rows)

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
        if unsafe and self._folder.is_alive():
            from ..attach.unsafe_eval import eval_in_holder

            return eval_in_holder(self._folder.pid, code, limit_s=timeout_s or DEFAULT_TIMEOUT_S)
        with self._asking("it can run no code any more") as agent:
            return agent.eval(
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
        with self._asking("it can run no code any more") as agent:
            agent.commit_eval(commit)

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
        with self._asking("it makes no steps any more") as agent:
            yield from agent.eval_steps(
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
        with self._asking("python.evals has the evals that it had") as agent:
            return agent.jobs()

    def cancel(self, number: int) -> EvalJobs:
        """See `Process`."""
        with self._asking("it runs no code any more") as agent:
            return agent.cancel(number)

    def complete(self, text: str, *, session: str | None = None) -> Completions:
        """See `Process`."""
        with self._asking("it has no names any more") as agent:
            return agent.complete(text, session=session)

    def act(self, asked: Asked, *, timeout_s: float | None = None) -> Act:
        """See `Process`."""
        with self._asking("nothing can be changed in it") as agent:
            return agent.act(asked, timeout_s=timeout_s)

    def prepare_act(self, asked: Asked, *, ranks: int, timeout_s: float | None = None) -> Prepared:
        """See `Process`."""
        with self._asking("nothing can be changed in it") as agent:
            return agent.prepare_act(asked, ranks=ranks, timeout_s=timeout_s)

    def commit_act(self, commit: Commit) -> None:
        """See `Process`."""
        with self._asking("nothing can be changed in it") as agent:
            agent.commit_act(commit)

    def acts(self) -> Acts:
        """See `Process`."""
        with self._asking("python.actions has those that it had") as agent:
            return agent.acts()

    def backtrace(self, *, native: bool = False, locals: bool = False) -> wire.Backtrace:
        """See `Process`; from outside when the agent does not answer at once."""
        return ladder.backtrace_of(self._folder, self._notes, native=native, locals=locals)

    def live(
        self, table: str, *, wait_s: float | None = None, patient: bool = False
    ) -> wire.LiveRows:
        """See `Process`."""
        with self._asking(f"the table {table} can no longer be asked") as agent:
            return agent.live(table, wait_s=wait_s, patient=patient)

    def profile(
        self, steps: int = 3, *, timeout_s: float | None = None, tell: TellSteps | None = None
    ) -> StepsProfile:
        """See `Process`."""
        from .profile_client import profile_steps, read_profile

        address, limit = Address(path=self._folder.socket), timeout_s or self._timeout_s
        try:
            with self._asking("its steps can be profiled no more"):
                data = profile_steps(address, steps, timeout_s=limit, tell=tell)
        except ConnectionLost:
            raise NotProbed(self._folder.pid, "its agent left it meanwhile") from None
        return read_profile(data, self.query)

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
        return sample(self._folder.pid, how, self._notes, tell)

    def arm(
        self,
        what: str,
        steps: int,
        *,
        addresses: tuple[int, ...] = (),
        cleaning: tuple[str, ...] = (),
    ) -> wire.ArmedAnswer:
        """See `Process`."""
        with self._asking("nothing can be armed in it") as agent:
            return agent.arm(what, steps, addresses=addresses, cleaning=cleaning)

    def armed(self) -> wire.ArmedAnswer:
        """See `Process`."""
        with self._asking("nothing is armed in it") as agent:
            return agent.armed()

    def record_allocations(self, state: str, *, steps: int | None = None) -> RecordStatus:
        """See `Process`."""
        with self._asking("nothing can be recorded in it") as agent:
            return agent.record_allocations(state, steps=steps)

    def snapshot(
        self,
        *,
        steps: int | None = None,
        timeout_s: float | None = None,
        tell: TellRecording | None = None,
        first_step: int | None = None,
    ) -> Recording:
        """See `Process`; what a process recorded that has ended is in its folder."""
        from .recording_client import last_recording

        if not self._folder.is_alive() and (last := last_recording(self._folder.allocations)):
            self._notes.append("the process has ended; this is the last that it recorded")
            return last
        with self._asking("nothing was recorded in it") as agent:
            return agent.snapshot(
                steps=steps, timeout_s=timeout_s, tell=tell, first_step=first_step
            )

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        return ring_peek.tables_answer(self._folder)

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> LabelsAnswer:
        """See `Process`."""
        with self._asking("it reads no batch any more") as agent:
            return agent.labels(samples=samples, timeout_s=timeout_s)

    def fit(self, request: FitRequest) -> FitAnswer:
        """See `Process`."""
        with self._asking("it trains no more") as agent:
            return agent.fit(request)

    def status(self) -> wire.Card:
        """See `Process`."""
        card = self._folder.read_card()
        if card is None and self._folder.is_alive():
            return self._agent.status()
        if card is None:
            raise InternalError(f"the card in {self._folder.path} cannot be read")
        return card

    def settings(self) -> wire.SettingsAnswer:
        """See `Process`."""
        with self._asking("its settings are gone") as agent:
            return agent.settings()

    def set(self, name: str, value: str) -> wire.SettingsAnswer:
        """See `Process`."""
        with self._asking("nothing can be set in it") as agent:
            return agent.set(name, value)

    def attach(self, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
        """See `Process`."""
        from ..attach.attach import attach

        if not self._folder.is_alive():
            raise ProcessEnded(self._folder.pid, "nothing can be put into it")
        return attach(self._folder.pid, how=how, timeout_s=timeout_s)

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """See `Process`."""
        with self._asking("its agent has ended with it") as agent:
            detached = agent.detach(keep_record=keep_record)
        last = self._folder.socket if keep_record else self._folder.path
        end = time.monotonic() + ready_s()
        while last.exists() and time.monotonic() < end:  # it answers before it leaves
            time.sleep(_POLL_S)
        return detached

    def notes(self) -> list[str]:
        """See `Process`."""
        return list(self._notes)

    @contextlib.contextmanager
    def _asking(self, lost: str) -> Iterator[RemoteProcess]:
        """The agent, once it is known that it answers at all.

        Args:
            lost: What cannot be had of a process that has ended.

        Raises:
            ProcessEnded: It has ended, or does before it has answered.
        """
        if not self._folder.is_alive():
            raise ProcessEnded(self._folder.pid, lost)
        ping(self._folder, timeout_s=ready_s())
        try:
            yield self._agent
        except (ConnectionLost, NotProbing):
            if self._ends():
                raise ProcessEnded(self._folder.pid, lost) from None
            raise

    def _ends(self) -> bool:
        """Whether the process has ended; its connections close a moment before."""
        end = time.monotonic() + _ENDING_S
        while self._folder.is_alive():
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True
