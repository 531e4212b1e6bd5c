"""A job with the questions that compare its ranks.

Rules of this file: as those of `process`. Who did not answer is in `membership` or among the
verdict's own outcomes; an error is raised only where nobody did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cluster.job.members import find_members
from ..cluster.job.membership import Membership
from ..cluster.union.budget import DEFAULT_BUDGET_MIB
from ..cluster.union.query import Union, UnionAnswer
from ..cluster.union.statements.leaves import Plan
from ..errors import BadEndpoint
from ..messages.frozen import InNotebooks
from ..messages.limits import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from ..cluster.ranks.question import Asking
    from ..cluster.ranks.slow.stragglers import StragglerReport
    from ..diagnosis.doctor.report import Report
    from ..diagnosis.hang.evidence import Verdict


class Job(InNotebooks):
    """Many processes; every table has the first columns `rank`, `host` and `pid`.

    Attributes:
        membership: Who they are, ranks that were expected and not seen among them.
    """

    asked = "-t all"
    """How a command names them."""

    def __init__(self, membership: Membership, *, token: str | None, timeout_s: float) -> None:
        self.membership = membership
        self._token, self._timeout_s = token, timeout_s

    def query(
        self,
        sql: str,
        *,
        timeout_s: float | None = None,
        max_rows: int | None = None,
        budget_mib: float = DEFAULT_BUDGET_MIB,
    ) -> UnionAnswer:
        """Run one read-only statement over the rows of all processes.

        Args:
            timeout_s: When the answer has to be there; who is late by then is left out, and
                told in the answer's `outcomes`.
            max_rows: Where to cut the answer.
            budget_mib: What all processes may send together.

        Raises:
            ProbingError: The statement cannot be run, or would move too much.
        """
        union = Union(self.membership.members, budget_mib=budget_mib, token=self._token)
        return union.query(sql, timeout_s=timeout_s or self._timeout_s, max_rows=max_rows)

    def explain(self, sql: str) -> Plan:
        """What each process would be asked, and what would run over the answers.

        Raises:
            ProbingError: The statement cannot be run.
        """
        return Union(self.membership.members).explain(sql)

    def __repr__(self) -> str:
        return f"<probing.Job {self.asked}: {len(self.membership.members)} processes>"

    def hang(self, *, timeout_s: float | None = None) -> tuple[Verdict, ...]:
        """Why a job does not go on, and which rank is the cause: a verdict for each job.

        Args:
            timeout_s: How long any one question may take.
        """
        from ..diagnosis.hang.diagnosis import diagnose

        limit_s = timeout_s or self._timeout_s
        members = self.membership.members
        return diagnose(members, timeout_s=limit_s, token=self._token, asked=self.asked)

    def stragglers(self, steps: int = 20, *, timeout_s: float | None = None) -> StragglerReport:
        """Which ranks hold up the others, and in what.

        Args:
            steps: How many of the last steps to compare.
            timeout_s: How long an answer may take.
        """
        from ..cluster.ranks.question import Asking

        limit_s = timeout_s or self._timeout_s
        members = self.membership.members
        return stragglers_of(Asking(members=members, timeout_s=limit_s, token=self._token), steps)

    def doctor(self, *, within_s: float = 20.0, thorough: bool = True) -> Report:
        """What is wrong with it, since when, how sure that is, and what to do.

        Args:
            within_s: How long it takes at the most.
            thorough: Also look at what only its next steps can show.
        """
        from ..diagnosis.doctor.examine import examine

        return examine(
            self.membership.members,
            token=self._token,
            asked=self.asked,
            is_thorough=thorough,
            within_s=within_s,
        )


def stragglers_of(asking: Asking, steps: int) -> StragglerReport:
    """Ask for the times of the last steps, and compare them.

    Raises:
        ProbingError: Nobody has answered.
    """
    from ..cluster.job.outcomes import why_nobody
    from ..cluster.ranks.slow.gather_times import gather_times
    from ..cluster.ranks.slow.stragglers import find_stragglers

    times, outcomes = gather_times(asking, last=steps)
    if (lost := why_nobody(outcomes)) is not None:
        raise lost
    return find_stragglers(times)


def connect_many(
    endpoints: str | int | Sequence[str | int],
    *,
    token: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Job:
    """Find all processes that the endpoints mean.

    Args:
        endpoints: What `probing.connect` takes, and ``all``, ``job:NAME``, ``rank:0-63``,
            ``@hostfile`` and the addresses of node servers; one, or several.
        token: The token of TCP requests.
        timeout_s: The time limit of each statement that names none, in seconds.

    Raises:
        ProbingError: Nothing at all was found, or no endpoint is named.
    """
    named = [endpoints] if isinstance(endpoints, (str, int)) else endpoints
    words = [str(each).strip() for each in named]
    if not all(words) or not words:
        raise BadEndpoint("", "name at least one, such as connect_many('all')")
    found = Job(find_members(words, token=token), token=token, timeout_s=timeout_s)
    found.asked = " ".join(f"-t {endpoint}" for endpoint in words)
    return found
