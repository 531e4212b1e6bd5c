"""A process of this machine that has an agent, or had one.

Rules of this file: runs at the operator's side. What can be answered from the process's files is
answered from them, without its help; what needs its agent waits for it a limited time; what can be
had from outside instead is, and `notes` says so. Heavy libraries are imported by the method that
needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import ladder, ring_peek, wire
from .errors import (
    ConnectionLost,
    InternalError,
    NotProbed,
    ProcessEnded,
)
from .injection.names import AUTO
from .limits import DEFAULT_TIMEOUT_S, READY_S
from .ping import ping
from .providers import providers_for
from .remote_process import RemoteProcess
from .rundir import ProcessFolder
from .transport import Address

if TYPE_CHECKING:
    from .allocation_wire import RecordStatus
    from .allocations import Recording
    from .answer import Answer
    from .attaching import Attached
    from .fit import FitAnswer, FitRequest
    from .profile_client import StepsProfile
    from .profile_client import Tell as TellSteps
    from .profiling import Samples
    from .recording_client import Tell as TellRecording
    from .sampling import Tell as TellSeconds


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
        from .engine import Engine

        limit_s = timeout_s or self._timeout_s
        engine = Engine(providers_for(self._folder, limit_s=limit_s, notes=self._notes))
        return engine.run(sql, timeout_s=limit_s, max_rows=max_rows)

    def eval(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        now: bool = False,
        unsafe: bool = False,
    ) -> wire.EvalResult:
        """See `Process`."""
        if unsafe and self._folder.is_alive():
            from .unsafe_eval import eval_in_holder

            return eval_in_holder(self._folder.pid, code, limit_s=timeout_s or DEFAULT_TIMEOUT_S)
        self._require_agent("it can run no code any more")
        return self._agent.eval(code, timeout_s=timeout_s, now=now)

    def backtrace(self, *, native: bool = False, locals: bool = False) -> wire.Backtrace:
        """See `Process`; from outside when the agent does not answer at once."""
        return ladder.backtrace_of(self._folder, self._notes, native=native, locals=locals)

    def live(
        self, table: str, *, wait_s: float | None = None, patient: bool = False
    ) -> wire.LiveRows:
        """See `Process`."""
        self._require_agent(f"the table {table} can no longer be asked")
        return self._agent.live(table, wait_s=wait_s, patient=patient)

    def profile(
        self, steps: int = 3, *, timeout_s: float | None = None, tell: TellSteps | None = None
    ) -> StepsProfile:
        """See `Process`."""
        from .profile_client import profile_steps, read_profile

        lost = "its steps can be profiled no more"
        self._require_agent(lost)
        address, limit = Address(path=self._folder.socket), timeout_s or self._timeout_s
        try:
            data = profile_steps(address, steps, timeout_s=limit, tell=tell)
        except ConnectionLost:
            if not self._folder.is_alive():
                raise ProcessEnded(self._folder.pid, lost) from None
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
        from .sampling import How, sample

        how = How(seconds=seconds, hz=hz, idle=idle, timeline=timeline)
        return sample(self._folder.pid, how, self._notes, tell)

    def arm(self, what: str, steps: int) -> wire.ArmedAnswer:
        """See `Process`."""
        self._require_agent("nothing can be armed in it")
        return self._agent.arm(what, steps)

    def armed(self) -> wire.ArmedAnswer:
        """See `Process`."""
        self._require_agent("nothing is armed in it")
        return self._agent.armed()

    def record_allocations(self, state: str, *, steps: int | None = None) -> RecordStatus:
        """See `Process`."""
        self._require_agent("nothing can be recorded in it")
        return self._agent.record_allocations(state, steps=steps)

    def snapshot(
        self,
        *,
        steps: int | None = None,
        timeout_s: float | None = None,
        tell: TellRecording | None = None,
    ) -> Recording:
        """See `Process`; what a process recorded that has ended is in its folder."""
        from .recording_client import last_recording

        if not self._folder.is_alive() and (last := last_recording(self._folder.allocations)):
            self._notes.append("the process has ended; this is the last that it recorded")
            return last
        self._require_agent("nothing was recorded in it")
        return self._agent.snapshot(steps=steps, timeout_s=timeout_s, tell=tell)

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        return ring_peek.tables_answer(self._folder)

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> wire.LabelsAnswer:
        """See `Process`."""
        self._require_agent("it reads no batch any more")
        return self._agent.labels(samples=samples, timeout_s=timeout_s)

    def fit(self, request: FitRequest) -> FitAnswer:
        """See `Process`."""
        self._require_agent("it trains no more")
        return self._agent.fit(request)

    def status(self) -> wire.Card:
        """See `Process`."""
        card = self._folder.read_card()
        if card is None:
            raise InternalError(f"the card in {self._folder.path} cannot be read")
        return card

    def settings(self) -> wire.SettingsAnswer:
        """See `Process`."""
        self._require_agent("its settings are gone")
        return self._agent.settings()

    def set(self, name: str, value: str) -> wire.SettingsAnswer:
        """See `Process`."""
        self._require_agent("nothing can be set in it")
        return self._agent.set(name, value)

    def attach(self, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
        """See `Process`."""
        from .attaching import attach

        if not self._folder.is_alive():
            raise ProcessEnded(self._folder.pid, "nothing can be put into it")
        return attach(self._folder.pid, how=how, timeout_s=timeout_s)

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """See `Process`."""
        self._require_agent("its agent has ended with it")
        return self._agent.detach(keep_record=keep_record)

    def notes(self) -> list[str]:
        """See `Process`."""
        return list(self._notes)

    def _require_agent(self, lost: str) -> None:
        """Find out quickly whether the process can answer at all."""
        if not self._folder.is_alive():
            raise ProcessEnded(self._folder.pid, lost)
        ping(self._folder, timeout_s=READY_S)
