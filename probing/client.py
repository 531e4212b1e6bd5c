"""Asks one process, wherever it is and whatever state it is in.

Rules of this file: runs at the operator's side and in the SQL worker. What can be answered from
the process's files is answered from them, without its help; what needs its agent waits for it a
limited time; what can be had from outside instead is, and `notes` says so. Heavy libraries are
imported by the method that needs them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, TypeVar

from . import ladder, process, ring_peek, stacks, wire
from .endpoint import Local, Stranger, resolve
from .errors import (
    AttachWaiting,
    ConnectionLost,
    InternalError,
    NoSuchProcess,
    NotAnswering,
    NotProbed,
    NotProbing,
    NotPython,
    ProbingError,
    ProcessEnded,
    UsageError,
)
from .injection.names import AUTO
from .rundir import ProcessFolder, directory_of, from_env
from .tables import KERNELS, MODULES, OBSERVED_COLUMNS, RECORDED_TABLES, TABLES, Table
from .transport import Address, ask

if TYPE_CHECKING:
    import pyarrow as pa

    from .answer import Answer
    from .attaching import Attached
    from .engine import TableProvider
    from .profile_client import StepsProfile
    from .profile_client import Tell as TellSteps
    from .profiling import Samples
    from .sampling import Tell as TellSeconds

T = TypeVar("T")

_READY_S = 2.0
"""How long a live process may take to say that it can run Python code at all."""
_GRACE_S = 5.0
"""What an answer may take beyond the time limit that the other side keeps itself."""
DEFAULT_TIMEOUT_S = 30.0
WAIT_S = 10.0
"""How long a model's next call is waited for when nobody says how long."""
_WAIT_SHARE = 0.5
"""How much of a query's time that wait may take."""


class Process(Protocol):
    """A process that can be asked.

    Every method raises a `ProbingError` when there is no answer, with the way out in its
    ``help``.

    Attributes:
        label: What the user called it.
    """

    label: str

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """Run one read-only SQL statement over its tables."""

    def eval(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        now: bool = False,
        unsafe: bool = False,
    ) -> wire.EvalResult:
        """Run Python code in it, at a safe point unless `now`.

        Without `timeout_s` the limit is the process's own setting `eval_timeout_s`.

        Args:
            unsafe: Run it in the thread that holds the interpreter lock for ever, which can harm
                the process; only on this machine. See `probing.injection.holder`.
        """

    def backtrace(self, *, native: bool = False, locals: bool = False) -> wire.Backtrace:
        """The stack of every thread.

        Args:
            native: Also the frames of C functions, for which a live process is paused; only on
                this machine.
            locals: Also short texts of the local variables.
        """

    def live(
        self, table: str, *, wait_s: float | None = None, patient: bool = False
    ) -> wire.LiveRows:
        """The rows of a live table, as the agent computes them now.

        Args:
            wait_s: How long what only the next step can show may be waited for; None for not at
                all. See the columns of python.modules.
            patient: Whether to wait as long even while the training makes no progress.
        """

    def profile(
        self, steps: int = 3, *, timeout_s: float | None = None, tell: TellSteps | None = None
    ) -> StepsProfile:
        """Run torch.profiler over its next training steps.

        Args:
            timeout_s: How long any one step may take.
            tell: Called with how far it is, each time that has changed.
        """

    def sample(
        self,
        seconds: float = 10.0,
        *,
        hz: int = 100,
        idle: bool = False,
        timeline: bool = False,
        tell: TellSeconds | None = None,
    ) -> Samples:
        """Sample the stacks of all its threads from outside; only on this machine.

        Args:
            idle: Also of threads that wait.
            timeline: Keep them in the order of time, as a Chrome trace, instead of counting them.
            tell: Called with the seconds that have passed, now and then.
        """

    def tables(self) -> wire.TablesAnswer:
        """How many rows each table holds and has lost."""

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> wire.LabelsAnswer:
        """Tokens beside labels of the next batch that the training reads."""

    def status(self) -> wire.Card:
        """Who it is."""

    def settings(self) -> wire.SettingsAnswer:
        """The settings in force."""

    def set(self, name: str, value: str) -> wire.SettingsAnswer:
        """Change one setting."""

    def attach(self, *, how: str = AUTO, timeout_s: float | None = None) -> Attached:
        """Put the agent into it, unless it is there; see `probing.attaching.attach`."""

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """Take the agent out of it.

        Args:
            keep_record: Whether to keep what was recorded.
        """

    def notes(self) -> list[str]:
        """Sentences about how the last answer came about."""


def connect(
    endpoint: str | int, *, token: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Process:
    """Find a process by what the user calls it; nothing is sent to it yet.

    Args:
        endpoint: A pid, ``host:port``, ``[v6]:port``, an http(s) URL, a socket path, ``rank:N``,
            a process name, or the run folder of a process.
        token: The token of a TCP listener; see also PROBING_TOKEN.
        timeout_s: The time limit of each question that names none, in seconds.

    Raises:
        BadEndpoint: The endpoint is none of these, or fits several processes.
        NoSuchProcess: Nothing matches it.
    """
    place = resolve(endpoint, from_env(), token=token)
    label = str(endpoint)
    if isinstance(place, Local):
        return LocalProcess(label, place.folder, timeout_s)
    if isinstance(place, Stranger):
        return StrangeProcess(label, place.pid)
    return RemoteProcess(label, place, timeout_s)


class RemoteProcess:
    """A process that is asked through its agent alone."""

    def __init__(self, label: str, address: Address, timeout_s: float) -> None:
        self.label = label
        self._address = address
        self._timeout_s = timeout_s
        self._notes: list[str] = []

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """See `Process`."""
        from .answer import Answer

        limit = timeout_s or self._timeout_s
        request = wire.QueryRequest(sql=sql, timeout_s=limit, max_rows=max_rows)
        data = ask(self._address, "query", body=request, timeout_s=limit + _GRACE_S)
        return Answer.from_ipc(data)

    def eval(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        now: bool = False,
        unsafe: bool = False,
    ) -> wire.EvalResult:
        """See `Process`."""
        if unsafe:
            raise _only_there(self.label, "an unsafe eval")
        request = wire.EvalRequest(code=code, timeout_s=timeout_s, now=now)
        wait_s = (timeout_s or self._timeout_s) + _GRACE_S
        data = ask(self._address, "eval", body=request, timeout_s=wait_s)
        return _received(wire.EvalResult, data)

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

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        return self._get(wire.TablesAnswer, "tables")

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> wire.LabelsAnswer:
        """See `Process`."""
        limit = timeout_s or self._timeout_s
        request = wire.LabelsRequest(samples=samples, timeout_s=limit)
        data = ask(self._address, "labels", body=request, timeout_s=limit + _GRACE_S)
        return _received(wire.LabelsAnswer, data)

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


class LocalProcess:
    """A process of this machine: its files first, its agent where it must be."""

    def __init__(self, label: str, folder: ProcessFolder, timeout_s: float) -> None:
        self.label = label
        self._folder = folder
        self._timeout_s = timeout_s
        self._agent = RemoteProcess(label, Address(path=folder.socket), timeout_s)
        self._notes: list[str] = []

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
            return _eval_in_holder(self._folder.pid, code, timeout_s)
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

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        return ring_peek.tables_answer(self._folder)

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> wire.LabelsAnswer:
        """See `Process`."""
        self._require_agent("it reads no batch any more")
        return self._agent.labels(samples=samples, timeout_s=timeout_s)

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
        ping(self._folder, timeout_s=_READY_S)


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
    ) -> wire.EvalResult:
        """See `Process`."""
        if unsafe:
            return _eval_in_holder(self._pid, code, timeout_s)
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

    def tables(self) -> wire.TablesAnswer:
        """See `Process`."""
        raise self._no_agent()

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> wire.LabelsAnswer:
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


def ping(folder: ProcessFolder, *, timeout_s: float) -> None:
    """Return when the process has shown that it can run Python code.

    Raises:
        NotProbed: It has no agent, or its agent could not start.
        NotAnswering: It did not answer in time; the sentence says why where that is known.
    """
    try:
        ask(Address(path=folder.socket), "ping", timeout_s=timeout_s)
    except NotProbing:
        card = folder.read_card()
        why = card.problems[0] if card and card.problems else "its agent has stopped"
        raise NotProbed(folder.pid, why) from None
    except NotAnswering:
        why = ladder.why_silent(folder)
        raise NotAnswering(f"process {folder.pid}", timeout_s, why) from None


def providers_for(
    folder: ProcessFolder,
    *,
    limit_s: float = DEFAULT_TIMEOUT_S,
    timeout_s: float = _READY_S,
    notes: list[str] | None = None,
) -> list[TableProvider]:
    """What the SQL engine reads the tables of a process from.

    Args:
        limit_s: What the whole query may take.
        timeout_s: What an answer of the agent may, where it need not wait for the training.
        notes: Gets sentences about how the rows were had.
    """
    from .engine import RecordedTable

    told = notes if notes is not None else []
    wait_s = min(WAIT_S, limit_s * _WAIT_SHARE)
    return [
        RecordedTable(table, folder)
        if table in RECORDED_TABLES
        else _LastProfile(folder)
        if table == KERNELS
        else _LiveTable(table, folder, timeout_s, wait_s, told)
        for table in TABLES
    ]


class _LiveTable:
    """A live table, asked of the agent once per query."""

    def __init__(
        self,
        table: Table,
        folder: ProcessFolder,
        timeout_s: float,
        wait_s: float,
        notes: list[str],
    ) -> None:
        self.table = table
        self._folder = folder
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._notes = notes

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows; the training is waited for only where a column needs that."""
        from .arrow_tables import live_to_arrow

        if self.table.name in stacks.STACK_TABLES:
            backtrace = ladder.backtrace_of(self._folder, self._notes)
            if backtrace.note is not None:
                self._notes.append(backtrace.note)
            return live_to_arrow(stacks.rows_of(self.table, backtrace))
        if not self._folder.is_alive():
            raise ProcessEnded(self._folder.pid, f"{self.table.full_name} can no longer be asked")
        ping(self._folder, timeout_s=self._timeout_s)
        is_observed = self.table is MODULES and (columns is None or columns & OBSERVED_COLUMNS)
        agent = RemoteProcess("", Address(path=self._folder.socket), self._timeout_s)
        live = agent.live(self.table.name, wait_s=self._wait_s if is_observed else None)
        if live.note is not None:
            self._notes.append(live.note)
        return live_to_arrow(live)


class _LastProfile:
    """The table of the last profile, computed from its file."""

    def __init__(self, folder: ProcessFolder) -> None:
        self.table = KERNELS
        self._folder = folder

    def load(self, columns: frozenset[str] | None) -> pa.Table:
        """All rows."""
        from .arrow_tables import live_to_arrow
        from .profile_client import last_profile
        from .profiling import kernel_rows

        return live_to_arrow(kernel_rows(last_profile(self._folder.profile)))


def _eval_in_holder(pid: int, code: str, timeout_s: float | None) -> wire.EvalResult:
    """Run code in the thread that holds the interpreter lock."""
    from .unsafe_eval import eval_in_holder

    return eval_in_holder(pid, code, limit_s=timeout_s or DEFAULT_TIMEOUT_S)


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
        raise InternalError(f"the agent's answer cannot be read: {error.message}") from None
