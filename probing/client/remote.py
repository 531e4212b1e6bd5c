"""A process that is asked through its agent alone, on this machine or another.

Rules of this file: one request for each question; nothing is read but the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..attach.injectors.names import AUTO
from ..errors import InternalError, ProbingError, UsageError
from ..messages import common as wire
from ..messages.act import Act, Acts, Commit, Prepared, request_for
from ..messages.eval import (
    Appointment,
    CancelRequest,
    CompleteRequest,
    Completions,
    EvalCommit,
    EvalJobs,
    RepeatRequest,
)
from ..messages.fit import FitAnswer
from ..messages.labels import LabelsAnswer, LabelsRequest
from ..messages.limits import GRACE_S, LARGE_ANSWER_BYTES
from ..reach.transport import Address, ask
from .eval_client import results_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..allocations import Recording
    from ..attach.attach import Attached
    from ..messages.act import Asked
    from ..messages.allocation import RecordStatus
    from ..messages.fit import FitRequest
    from ..profiling import Samples
    from ..profiling.sampling import Tell as TellSeconds
    from ..sql.answer import Answer
    from .profile_client import StepsProfile, Tell as TellSteps
    from .recording_client import Tell as TellRecording

T = TypeVar("T")

_FIT_S = 60.0
_LONGEST_ACT_S = 3600.0
"""How long an action may take once it has begun, such as a checkpoint being written."""


class RemoteProcess:
    """A process that is asked through its agent alone."""

    def __init__(self, label: str, address: Address, timeout_s: float) -> None:
        self.label = label
        self._address = address
        self._timeout_s = timeout_s
        self._notes: list[str] = []

    @property
    def address(self) -> Address:
        """Where it is asked."""
        return self._address

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """See `Process`."""
        from ..sql.answer import Answer

        limit = timeout_s or self._timeout_s
        request = wire.QueryRequest(sql=sql, timeout_s=limit, max_rows=max_rows)
        data = ask(
            self._address,
            "query",
            body=request,
            timeout_s=limit + GRACE_S,
            most_bytes=LARGE_ANSWER_BYTES,
        )
        return Answer.from_ipc(data)

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
            raise _only_there(self.label, "an unsafe eval")
        request = wire.EvalRequest(
            code=code,
            timeout_s=timeout_s,
            now=now,
            thread=thread,
            frame=frame,
            session=session,
            assign=assign,
            together=together,
        )
        wait_s = (timeout_s or self._timeout_s) + GRACE_S
        data = ask(self._address, "eval", body=request, timeout_s=wait_s)
        return _received(wire.EvalResult, data)

    def commit_eval(self, commit: EvalCommit) -> None:
        """See `Process`."""
        ask(self._address, "eval_commit", body=commit, timeout_s=self._timeout_s)

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
        request = RepeatRequest(
            code=code,
            every=every,
            times=times,
            timeout_s=timeout_s,
            thread=thread,
            frame=frame,
            assign=assign,
        )
        return results_of(self._address, request, timeout_s or self._timeout_s)

    def jobs(self) -> EvalJobs:
        """See `Process`."""
        return self._get(EvalJobs, "jobs")

    def cancel(self, number: int) -> EvalJobs:
        """See `Process`."""
        request = CancelRequest(number=number)
        data = ask(self._address, "cancel", body=request, timeout_s=self._timeout_s)
        return _received(EvalJobs, data)

    def complete(self, text: str, *, session: str | None = None) -> Completions:
        """See `Process`."""
        request = CompleteRequest(text=text, session=session)
        data = ask(self._address, "complete", body=request, timeout_s=self._timeout_s)
        return _received(Completions, data)

    def act(self, asked: Asked, *, timeout_s: float | None = None) -> Act:
        """See `Process`; what has begun is waited for, however long it takes."""
        limit = timeout_s or self._timeout_s
        request = request_for(asked, limit)
        data = ask(self._address, "act", body=request, timeout_s=limit + _LONGEST_ACT_S)
        return _received(Act, data)

    def prepare_act(self, asked: Asked, *, ranks: int, timeout_s: float | None = None) -> Prepared:
        """See `Process`."""
        limit = timeout_s or self._timeout_s
        request = request_for(asked, limit, ranks)
        data = ask(self._address, "act_prepare", body=request, timeout_s=limit + GRACE_S)
        return _received(Prepared, data)

    def commit_act(self, commit: Commit) -> None:
        """See `Process`."""
        ask(self._address, "act_commit", body=commit, timeout_s=self._timeout_s)

    def acts(self) -> Acts:
        """See `Process`."""
        return self._get(Acts, "acts")

    def backtrace(self, *, native: bool = False, locals: bool = False) -> wire.Backtrace:
        """See `Process`."""
        if native:
            self._notes.append(
                "frames of C functions are left out: only a command on the process's own machine"
                " can read them"
            )
        flags = ("locals",) if locals else ()
        data = ask(self._address, "backtrace", timeout_s=self._timeout_s, flags=flags)
        return _received(wire.Backtrace, data)

    def live(
        self, table: str, *, wait_s: float | None = None, patient: bool = False
    ) -> wire.LiveRows:
        """See `Process`."""
        times = {} if wait_s is None else {"wait_s": wait_s}
        data = ask(
            self._address,
            "live",
            timeout_s=self._timeout_s + (wait_s or 0.0),
            flags=("patient",) if patient else (),
            times=times,
            table=table,
        )
        return _received(wire.LiveRows, data)

    def profile(
        self, steps: int = 3, *, timeout_s: float | None = None, tell: TellSteps | None = None
    ) -> StepsProfile:
        """See `Process`."""
        from .profile_client import profile_steps, read_profile

        limit = timeout_s or self._timeout_s
        return read_profile(
            profile_steps(self._address, steps, timeout_s=limit, tell=tell), self.query
        )

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
        raise _only_there(self.label, "profile --sampling")

    def arm(
        self,
        what: str,
        steps: int,
        *,
        addresses: tuple[int, ...] = (),
        cleaning: tuple[str, ...] = (),
    ) -> wire.ArmedAnswer:
        """See `Process`."""
        request = wire.ArmRequest(what=what, steps=steps, addresses=addresses, cleaning=cleaning)
        data = ask(self._address, "arm", body=request, timeout_s=self._timeout_s)
        return _received(wire.ArmedAnswer, data)

    def armed(self) -> wire.ArmedAnswer:
        """See `Process`."""
        return self._get(wire.ArmedAnswer, "armed")

    def record_allocations(self, state: str, *, steps: int | None = None) -> RecordStatus:
        """See `Process`."""
        from .recording_client import change_recording

        return change_recording(self._address, state, steps, timeout_s=self._timeout_s)

    def snapshot(
        self,
        *,
        steps: int | None = None,
        timeout_s: float | None = None,
        tell: TellRecording | None = None,
        first_step: int | None = None,
    ) -> Recording:
        """See `Process`."""
        from .recording_client import take_snapshot

        return take_snapshot(
            self._address,
            steps,
            timeout_s=timeout_s or self._timeout_s,
            tell=tell,
            first_step=first_step,
        )

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        return self._get(wire.TablesAnswer, "tables")

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> LabelsAnswer:
        """See `Process`."""
        limit = timeout_s or self._timeout_s
        request = LabelsRequest(samples=samples, timeout_s=limit)
        data = ask(self._address, "labels", body=request, timeout_s=limit + GRACE_S)
        return _received(LabelsAnswer, data)

    def fit(self, request: FitRequest) -> FitAnswer:
        """See `Process`."""
        limit = request.timeout_s or _FIT_S
        data = ask(self._address, "fit", body=request, timeout_s=limit + GRACE_S)
        return _received(FitAnswer, data)

    def status(self) -> wire.Card:
        """See `Process`."""
        return self._get(wire.Card, "status")

    def settings(self) -> wire.SettingsAnswer:
        """See `Process`."""
        return self._get(wire.SettingsAnswer, "settings")

    def set(self, name: str, value: str) -> wire.SettingsAnswer:
        """See `Process`."""
        change = wire.SettingChange(name=name, value=value)
        data = ask(self._address, "set", body=change, timeout_s=self._timeout_s)
        return _received(wire.SettingsAnswer, data)

    def attach(self, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
        """See `Process`."""
        raise _only_there(self.label, "attach")

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """See `Process`."""
        request = wire.DetachRequest(keep_record=keep_record)
        data = ask(self._address, "detach", body=request, timeout_s=self._timeout_s)
        return _received(wire.Detached, data)

    def notes(self) -> list[str]:
        """See `Process`."""
        return list(self._notes)

    def _get(self, cls: type[T], route: str) -> T:
        """The answer to a GET."""
        return _received(cls, ask(self._address, route, timeout_s=self._timeout_s))


def _only_there(endpoint: str, what: str) -> UsageError:
    """The error for what only works on the process's own machine."""
    return UsageError(
        f"{what} works on processes of this machine only, and {endpoint} is an address.",
        help="Run the command on that machine, with the process's pid.",
    )


def _received(cls: type[T], data: bytes) -> T:
    """An answer as the object it must be."""
    try:
        return wire.decode(cls, data)
    except ProbingError as error:
        why = error.message.rstrip(".")
        raise InternalError(f"the agent's answer cannot be read: {why}") from None
