"""A process with the questions whose answers are verdicts and reports.

Rules of this file: each method hands over to the function that the command of the same name calls;
nothing is computed here. What a question needs is imported when it is asked.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from ..client import base
from ..client.connecting import transport_to
from ..errors import MissingLibrary
from ..messages.frozen import InNotebooks
from ..messages.limits import DEFAULT_TIMEOUT_S, WAIT_S

if TYPE_CHECKING:
    from ..cluster.job.membership import Member
    from ..cluster.ranks.slow.stragglers import StragglerReport
    from ..diagnosis.arming import Tell, Watch
    from ..diagnosis.dataloading import LoaderReport
    from ..diagnosis.doctor.report import Report
    from ..diagnosis.hang.evidence import Verdict
    from ..diagnosis.leaks.report import LeakReport
    from ..diagnosis.memory.memory_report import MemoryReport
    from ..diagnosis.memory.out_of_memory import OomReport
    from ..diagnosis.model_summary import Summary
    from ..diagnosis.runs.comparison import RunComparison
    from .steps import Steps

_NEEDED = ("duckdb", "numpy", "pyarrow")


class Process(base.Process, InNotebooks):
    """A process that can be asked; see `probing.connect`.

    Every method raises a `ProbingError` when there is no answer, with the way out in its ``help``.

    Attributes:
        label: What the user called it.
        folder: Its run folder; None where it is reached through its agent alone, or has none.
    """

    _token: str | None = None

    def __repr__(self) -> str:
        return f"<probing.Process {self.label}>"

    def steps(self, last: int = 200, *, timeout_s: float | None = None) -> Steps:
        """Its newest steps, the oldest first: rows for a data frame, and curves in a notebook.

        Args:
            last: How many.
            timeout_s: How long the answer may take.
        """
        from .steps import newest_steps

        return newest_steps(self, last, timeout_s=timeout_s)

    def memory(
        self,
        *,
        top: int = 10,
        theory: bool = False,
        referrers: bool = False,
        timeout_s: float | None = None,
    ) -> MemoryReport:
        """Where its memory is: by who holds it, and the largest tensors.

        Args:
            top: How many of the largest tensors to name.
            theory: Also what the activations of a transformer should take by formula.
            referrers: Also what refers to the largest tensors.
            timeout_s: How long its next step may be waited for; 10 s by default.
        """
        from ..diagnosis.memory.memory_report import report_on

        return report_on(
            self, top=top, theory=theory, referrers=referrers, timeout_s=timeout_s or WAIT_S
        )

    def summary(self, *, depth: int = 3, timeout_s: float | None = None) -> Summary:
        """Its models: their modules with parameters, shapes and FLOPs.

        Args:
            depth: How many levels below the root are shown.
            timeout_s: How long the model's next call may be waited for; 10 s by default.
        """
        from ..diagnosis.model_summary import ask_for_summary

        return ask_for_summary(self, depth=depth, timeout_s=timeout_s)

    def dataloaders(self) -> LoaderReport:
        """Its data loaders, their workers, and who keeps the training waiting."""
        from ..diagnosis.dataloading import report_on

        return report_on(self)

    def leak(
        self,
        steps: int = 8,
        *,
        by: str = "category",
        timeout_s: float | None = None,
        tell: Tell | None = None,
    ) -> LeakReport:
        """Whether its memory grows in the next steps, and what keeps it.

        Args:
            by: How to add up what has grown: ``category``, ``module`` or ``phase``.
            timeout_s: How long any one step may take.
            tell: Called with how far it is, now and then.
        """
        from ..diagnosis.memory.leaking import find_leaks

        limit_s = timeout_s or self._timeout_s
        return find_leaks(self, steps, timeout_s=limit_s, tell=tell, by=by)

    def gradients(
        self, steps: int = 1, *, timeout_s: float | None = None, tell: Tell | None = None
    ) -> Watch:
        """The gradient of every parameter in the next steps.

        Args:
            timeout_s: How long any one step may take.
            tell: Called with how far it is, now and then.
        """
        from ..diagnosis.arming import sample_gradients

        return sample_gradients(self, steps, timeout_s=timeout_s or self._timeout_s, tell=tell)

    def oom(self, seq: int | None = None) -> OomReport:
        """What was there when memory ran out.

        Args:
            seq: Of which error, by its ``seq`` in python.ooms; the last by default.
        """
        from ..diagnosis.memory.out_of_memory import report_on

        return report_on(self, seq)

    def hang(self, *, timeout_s: float | None = None) -> Verdict:
        """Whether it gets on, and why it does not.

        Args:
            timeout_s: How long any one question may take.
        """
        from ..diagnosis.hang.diagnosis import diagnose

        limit_s = timeout_s or self._timeout_s
        (verdict,) = diagnose(
            self._members(), timeout_s=limit_s, token=self._token, asked=self.label
        )
        return verdict

    def stragglers(self, steps: int = 20, *, timeout_s: float | None = None) -> StragglerReport:
        """Which ranks hold up the others; of one process only its own times can be told.

        Args:
            steps: How many of the last steps to compare.
            timeout_s: How long an answer may take.
        """
        from ..cluster.ranks.question import Asking
        from .ranks import stragglers_of

        limit_s = timeout_s or self._timeout_s
        asking = Asking(members=self._members(), timeout_s=limit_s, token=self._token)
        return stragglers_of(asking, steps)

    def diff(self, earlier: str | int, *, timeout_s: float | None = None) -> RunComparison:
        """What is not as in an earlier run of the same script.

        Args:
            earlier: Its pid or run folder, live or ended.
            timeout_s: How long an answer may take.
        """
        from ..diagnosis.runs.reading import compare_members, find_run

        limit_s = timeout_s or self._timeout_s
        before = find_run(str(earlier), token=self._token, timeout_s=limit_s)
        (after,) = self._members()
        names = (str(earlier), self.label)
        return compare_members(before, after, names=names, token=self._token, timeout_s=limit_s)

    def doctor(self, *, within_s: float = 20.0, thorough: bool = True) -> Report:
        """What is wrong with it, since when, how sure that is, and what to do.

        Args:
            within_s: How long it takes at the most.
            thorough: Also look at what only its next steps can show.
        """
        from ..diagnosis.doctor.examine import examine

        return examine(
            self._members(),
            token=self._token,
            asked=self.label,
            is_thorough=thorough,
            within_s=within_s,
        )

    def _members(self) -> tuple[Member, ...]:
        """Itself, as questions to several processes know it."""
        from ..cluster.job.members import find_members

        members = find_members((self.label,), token=self._token, timeout_s=self._timeout_s)
        return tuple([member for member in members.members if member.state != "missing"])


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
        MissingLibrary: Only the agent is installed here.
        NoSuchProcess: Nothing matches it.
    """
    require_libraries()
    transport = transport_to(endpoint, token=token, tls_ca=tls_ca, tls_fingerprint=tls_fingerprint)
    process = Process(str(endpoint), transport, timeout_s)
    process._token = token  # noqa: SLF001 - its own
    return process


def require_libraries() -> None:
    """Make sure that a process can be asked from here.

    Raises:
        MissingLibrary: Only what a training needs is installed.
    """
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise MissingLibrary(name)
