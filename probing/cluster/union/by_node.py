"""Asks node servers for all of their ranks at once.

Rules of this file: one request for each machine and leaf, whatever the number of its ranks; the
machine's part of a statement is merged there already. A server of a version without that route
has its ranks asked one by one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pyarrow as pa

from ...errors import BadEndpoint, InternalError, NotAnswering, NotProbing
from ...messages import common as wire, rank_paths
from ...messages.about.union import (
    MEMBERS_KEY,
    UnionMember,
    UnionOutcome,
    UnionOutcomes,
    UnionRequest,
)
from ...messages.frozen import dataclass
from ...messages.limits import LARGE_ANSWER_BYTES, grace_s
from ...reach.address import Address
from ...reach.endpoint import resolve
from ...reach.transport import ask
from ...rundir.folders import from_env
from ...sql.answer import Answer
from ..job.membership import Member
from ..job.outcomes import Outcome, State
from .budget import Budget
from .parts import Part
from .statements.leaves import Leaf

_LEAST_S = 0.1
LACKS_IT = frozenset({"no_such_route", "bad_request", "sql"})
"""The errors of a server that does not know the route, or the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What node servers told.

    Attributes:
        outcomes: Of every member; the rows of a machine are those of its first.
        again: The members that have to be asked one by one.
    """

    outcomes: dict[Member, Outcome[list[Part]]]
    again: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What one machine gave for one leaf."""

    rows: pa.Table
    outcomes: tuple[UnionOutcome, ...]


def groups_of(members: Sequence[Member]) -> dict[str, list[Member]]:
    """The members behind each node server that is asked for all of its own."""
    found: dict[str, list[Member]] = {}
    for member in members:
        if member.via is not None and member.state == "seen":
            found.setdefault(member.via, []).append(member)
    return {via: those for via, those in found.items() if len(those) > 1}


class NodeAsker:
    """Asks node servers for the leaves of one plan."""

    def __init__(
        self,
        groups: Mapping[str, Sequence[Member]],
        leaves: Sequence[Leaf],
        budget: Budget,
        *,
        timeout_s: float,
        token: str | None,
    ) -> None:
        """Prepare.

        Args:
            groups: The members behind each of them; the first of each stands for the others.
        """
        self._groups = {those[0]: tuple(those) for those in groups.values()}
        self._leaves, self._budget, self._token = leaves, budget, token
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self._rows: dict[Member, list[_Rows]] = {}
        self._parts: dict[Member, list[Part]] = {}
        self._told: dict[Member, list[UnionOutcome]] = {}
        self._failed: dict[Member, Outcome[list[Part]]] = {}

    @property
    def firsts(self) -> tuple[Member, ...]:
        """The first member behind each of them, who is asked for all."""
        return tuple(self._groups)

    @property
    def members(self) -> frozenset[Member]:
        """All members behind them."""
        return frozenset(member for those in self._groups.values() for member in those)

    def ask(self, first: Member) -> list[Part]:
        """The rows of a machine; in a thread for each of them.

        Raises:
            ProbingError: It cannot be asked, or has not told what became of every process.
        """
        rows = self._rows[first] = self._of_machine(self._groups[first])
        return [Part(rows=one.rows) for one in rows]

    def told(self, ends: Sequence[Outcome[list[Part]]]) -> Told:
        """What all members told.

        Args:
            ends: What became of the question at the first member behind each.
        """
        for end in ends:
            those = self._groups[end.member]
            if end.value is not None:
                self._take(those, self._rows[end.member])
                continue
            error = end.error
            if isinstance(error, NotAnswering):
                error = NotAnswering(str(end.member.via), end.seconds)
            self._failed.update({m: replace(end, member=m, error=error) for m in those})
        again = {m for m, end in self._failed.items() if end.error and end.error.code in LACKS_IT}
        asked = [member for those in self._groups.values() for member in those]
        outcomes = {m: self._outcome(m) for m in asked if m not in again}
        return Told(outcomes=outcomes, again=tuple(m for m in asked if m in again))

    def _of_machine(self, members: Sequence[Member]) -> list[_Rows]:
        """What one machine gives for each leaf.

        Raises:
            ProbingError: It cannot be asked, or has not told what became of every process.
        """
        url, key = rank_paths.split(members[0].endpoint)
        if not key:
            raise BadEndpoint(members[0].endpoint, "it is not behind a node server")
        address = resolve(url, from_env(), token=self._token)
        if not isinstance(address, Address):
            raise NotProbing(url, "it is not the address of a node server")
        asked = tuple(
            UnionMember(
                key=rank_paths.split(m.endpoint)[1], rank=m.rank, host=m.host, pid=m.pid, job=m.job
            )
            for m in members
        )
        return [self._request(address, asked, leaf) for leaf in self._leaves]

    def _request(self, address: Address, asked: tuple[UnionMember, ...], leaf: Leaf) -> _Rows:
        """One leaf, in the time that is left."""
        left_s = max(_LEAST_S, self._began + self._timeout_s - time.monotonic())
        request = UnionRequest(
            members=asked,
            table=leaf.table.full_name,
            columns=leaf.columns,
            sql=leaf.sql(added=None),
            timeout_s=left_s,
            max_bytes=self._budget.limit,
        )
        data = ask(
            address,
            "union",
            body=request,
            timeout_s=left_s,
            grace_s=grace_s(),
            most_bytes=LARGE_ANSWER_BYTES,
        )
        rows = Answer.from_ipc(data).to_arrow()
        metadata = dict(rows.schema.metadata or {})
        told = wire.decode(UnionOutcomes, metadata.pop(MEMBERS_KEY, b"")).members
        if [one.key for one in told] != [member.key for member in asked]:
            raise InternalError(f"{address} has not told what became of every process")
        return _Rows(rows=rows.replace_schema_metadata(metadata), outcomes=told)

    def _take(self, members: Sequence[Member], given: Sequence[_Rows]) -> None:
        """Keep the rows of a machine with the first of its members."""
        self._parts.update((member, [Part() for _ in self._leaves]) for member in members)
        self._parts[members[0]] = [Part(rows=one.rows) for one in given]
        for leaf, one in zip(self._leaves, given, strict=True):
            # They are here already: whether they were too many is judged when all are.
            who = (members[0], leaf.table.name)
            self._budget.take(who, size=one.rows.nbytes, rows=len(one.rows))
        for place, member in enumerate(members):
            self._told[member] = [one.outcomes[place] for one in given]

    def _outcome(self, member: Member) -> Outcome[list[Part]]:
        """What became of a member, by the worst that became of it for any leaf."""
        failed = self._failed.get(member)
        if failed is not None:
            return failed
        told = self._told[member]
        worst = next((one for one in told if one.state != "answered"), told[0])
        return Outcome(
            member=member,
            value=self._parts[member],
            error=wire.decode_error(worst.error.encode()) if worst.error is not None else None,
            seconds=worst.seconds,
            state=cast("State", worst.state),
            notes=tuple(dict.fromkeys(note for one in told for note in one.notes)),
        )
