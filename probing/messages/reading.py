"""One request that is the same for many processes, whoever asks it.

Rules of this file: as in `probing.messages.common`. Apart from the rest of what node servers hand
on, since commands that ask one process name what they would ask of many, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from .common import QueryRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One request to every process of some nodes, or to the nodes themselves.

    Attributes:
        route: ``members`` of a node; of its processes ``acts``, ``armed``, ``backtrace``, ``jobs``,
            ``live``, ``query``, ``settings``, ``status`` or ``tables``.
        flags: The query parameters that are true.
        query: The body of ``query``.
        table: What ``live`` is asked for.
        wait_s: How long ``live`` may wait for what only the training can show.
    """

    route: str
    flags: tuple[str, ...] = ()
    query: QueryRequest | None = None
    table: str | None = None
    wait_s: float | None = None

    @classmethod
    def of_query(cls, sql: str, timeout_s: float) -> Reading:
        """A statement as `probing.client.base.Process.query` asks it."""
        return cls(route="query", query=QueryRequest(sql=sql, timeout_s=timeout_s))

    @property
    def names(self) -> dict[str, str]:
        """What stands in braces in the route's path."""
        return {} if self.table is None else {"table": self.table}

    @property
    def times(self) -> dict[str, float]:
        """The query parameters in seconds."""
        return {} if self.wait_s is None else {"wait_s": self.wait_s}
