"""Many processes that are asked as one, from Python.

Rules of this file: `probing.connect_many` makes one; what it does is in `query`.
"""

from __future__ import annotations

from ..job.members import Membership
from .budget import DEFAULT_BUDGET_MIB
from .query import Union, UnionAnswer
from .statements.leaves import Plan


class Job:
    """Many processes; every table has the first columns `rank`, `host` and `pid`.

    Attributes:
        membership: Who they are, ranks that were expected and not seen among them.
    """

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
