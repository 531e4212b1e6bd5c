"""A process that can be asked, wherever it is and whatever state it is in.

Rules of this file: what can be asked, and who answers: a process of this machine, one that is
reached through its agent alone, or one without an agent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from ..attach.injectors.names import AUTO
from ..messages import common as wire
from ..messages.labels import LabelsAnswer
from ..messages.limits import DEFAULT_TIMEOUT_S
from ..reach.endpoint import Local, Stranger, resolve
from ..reach.trust import Trust, read_fingerprint
from ..rundir.folders import from_env
from .local import LocalProcess
from .remote import RemoteProcess
from .unattached import StrangeProcess

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
        thread: str | None = None,
        frame: int | None = None,
        session: str | None = None,
        assign: bool = False,
        together: Appointment | None = None,
    ) -> wire.EvalResult:
        """Run Python code in it, at a safe point unless `now`.

        Without `timeout_s` the limit is the process's own setting `eval_timeout_s`.

        Args:
            thread: Whose locals it sees, by name or number; None for the training thread.
            frame: Which frame of that thread, 0 being the innermost of the script's.
            session: Evals with the same one share ``_``, the last value.
            assign: Whether what the code assigns goes into the script; else the script's names
                stay as they are, and the result names those that the code has assigned.
            together: Where all ranks of a job run it at one step; see `ranks.eval_together`.
            unsafe: Run it in the thread that holds the interpreter lock for ever, which can harm
                the process; only on this machine. See `probing.attach.injectors.holder`.
        """

    def commit_eval(self, commit: EvalCommit) -> None:
        """Say where code of an appointment is run, or that it is run by itself."""

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
        """Run Python code in it at the end of every so many steps; gives results as they come.

        Args:
            timeout_s: How long each wait for a step, and each run, may take.
        """

    def jobs(self) -> EvalJobs:
        """The evals that it has in hand."""

    def cancel(self, number: int) -> EvalJobs:
        """Interrupt an eval that is in hand; what then still is."""

    def complete(self, text: str, *, session: str | None = None) -> Completions:
        """How a line of Python can go on; runs nothing."""

    def act(self, asked: Asked, *, timeout_s: float | None = None) -> Act:
        """Change something in its training, between two of its steps.

        Args:
            asked: What, such as ``Lr(scale=0.1)`` of `probing.messages.act`.
            timeout_s: How long the end of a step may be waited for.
        """

    def prepare_act(self, asked: Asked, *, ranks: int, timeout_s: float | None = None) -> Prepared:
        """Begin with a change that several ranks are to apply at one step of all.

        See `probing.cluster.job.acting`; returns once this one could.
        """

    def commit_act(self, commit: Commit) -> None:
        """Say where a prepared change is applied, or give it up."""

    def acts(self) -> Acts:
        """The last actions, and how they stand."""

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

    def arm(
        self,
        what: str,
        steps: int,
        *,
        addresses: tuple[int, ...] = (),
        cleaning: tuple[str, ...] = (),
    ) -> wire.ArmedAnswer:
        """Record something in the next training steps, or with 0 steps end that; returns at once.

        Args:
            what: ``nan`` for python.numerics, ``gradients`` for python.gradients, ``leak`` for
                python.leaks, ``referrers`` for python.referrers, ``clean`` to clean up memory at
                the end of a step.
            addresses: Where the storages are that ``referrers`` asks about.
            cleaning: What ``clean`` does: ``gc``, ``empty_cache`` or ``reset_peaks``.
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
        first_step: int | None = None,
    ) -> Recording:
        """The allocations that were recorded; where none were, those of its next steps.

        Args:
            timeout_s: How long any one step may take.
            tell: Called with how far it is, each time that has changed.
            first_step: The first step to record, on the CPU; None for the next.
        """

    def tables(self) -> wire.TablesAnswer:
        """How many rows each table holds and has lost."""

    def labels(self, *, samples: int = 2, timeout_s: float | None = None) -> LabelsAnswer:
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
        """Put the agent into it, unless it is there; see `probing.attach.attach.attach`."""

    def detach(self, *, keep_record: bool = False) -> wire.Detached:
        """Take the agent out of it.

        Args:
            keep_record: Whether to keep what was recorded.
        """

    def notes(self) -> list[str]:
        """Sentences about how the last answer came about."""


def connect(
    endpoint: str | int,
    *,
    token: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    tls_ca: str | None = None,
    tls_fingerprint: str | None = None,
) -> Process:
    """Find a process by what the user calls it; nothing is sent to it yet.

    Args:
        endpoint: A pid, ``host:port``, ``[v6]:port``, an http(s) URL, a socket path, ``rank:N``,
            a process name, or the run folder of a process.
        token: The token of a TCP listener; see also PROBING_TOKEN.
        timeout_s: The time limit of each question that names none, in seconds.
        tls_ca: A PEM file of the certificates that are trusted; see also PROBING_TLS_CA.
        tls_fingerprint: SHA-256 of the only certificate that is, instead; see also
            PROBING_TLS_FINGERPRINT.

    Raises:
        BadEndpoint: The endpoint is none of these, or fits several processes.
        NoSuchProcess: Nothing matches it.
    """
    trust = None
    if tls_ca is not None or tls_fingerprint is not None:
        pinned = (read_fingerprint(tls_fingerprint),) if tls_fingerprint else ()
        said = Trust.from_env(os.environ)
        trust = said._replace(ca=tls_ca or "", fingerprints=pinned)
    place = resolve(endpoint, from_env(), token=token, trust=trust)
    label = str(endpoint)
    if isinstance(place, Local):
        return LocalProcess(label, place.folder, timeout_s)
    if isinstance(place, Stranger):
        return StrangeProcess(label, place.pid, timeout_s)
    return RemoteProcess(label, place, timeout_s)
