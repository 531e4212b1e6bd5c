"""A process that can be asked, wherever it is and whatever state it is in.

Rules of this file: what can be asked, and who answers: a process of this machine, one that is
reached through its agent alone, or one without an agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from . import wire
from .endpoint import Local, Stranger, resolve
from .injection.names import AUTO
from .limits import DEFAULT_TIMEOUT_S
from .local_process import LocalProcess
from .remote_process import RemoteProcess
from .rundir import from_env
from .strange_process import StrangeProcess

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

    def arm(self, what: str, steps: int) -> wire.ArmedAnswer:
        """Record something in the next training steps, or with 0 steps end that; returns at once.

        Args:
            what: ``nan`` for python.numerics, ``gradients`` for python.gradients.
        """

    def armed(self) -> wire.ArmedAnswer:
        """What is recorded on demand, and how far it is."""

    def record_allocations(self, state: str, *, steps: int | None = None) -> RecordStatus:
        """Begin or end to record allocations; returns at once.

        Args:
            state: ``on`` or ``off``.
            steps: How many steps at most, where torch.profiler sees them.
        """

    def snapshot(
        self,
        *,
        steps: int | None = None,
        timeout_s: float | None = None,
        tell: TellRecording | None = None,
    ) -> Recording:
        """The allocations that were recorded; where none were, those of its next steps.

        Args:
            timeout_s: How long any one step may take.
            tell: Called with how far it is, each time that has changed.
        """

    def tables(self) -> wire.TablesAnswer:
        """How many rows each table holds and has lost."""

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> wire.LabelsAnswer:
        """Tokens beside labels of the next batch that the training reads."""

    def fit(self, request: FitRequest) -> FitAnswer:
        """Predict the peak of memory of a training step in another shape, without running it."""

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
