"""Asks node servers for all of their ranks at once, through some of them where they are many.

Rules of this file: one request for each machine and leaf, whatever the number of its ranks; the
machine's part of a statement is merged there already. A server of a version without that route
has its ranks asked one by one.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ...errors import BadEndpoint, ProbingError
from ...messages import common as wire, rank_paths
from ...messages.tree import Way
from ...messages.union import UnionMember, UnionOutcome, UnionRequest
from ...rundir.folders import from_env
from ..job.asking import Outcome, State, state_of
from ..job.handing_on import given_with, node_server, place, url_of
from ..job.membership import Member
from ..job.tree import ask_nodes
from .asking import Part
from .budget import Budget
from .errors import UnionTooLarge
from .leaves import Leaf
from .tree_asking import Machine, Question, Rows, TreeAsker

LACKS_IT = frozenset({"no_such_route", "bad_request", "sql"})
"""The errors of a server that does not know the route, or the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What node servers told.

    Attributes:
        outcomes: Of every member; the rows of a group of machines are those of its first.
        again: The members that have to be asked one by one.
    """

    outcomes: dict[Member, Outcome[list[Part]]]
    again: tuple[Member, ...]


def groups_of(members: Sequence[Member], fan_out: int) -> dict[str, list[Member]]:
    """The members behind each node server that is asked for all of its own."""
    found: dict[str, list[Member]] = {}
    for member in members:
        if member.via is not None and member.state == "seen":
            found.setdefault(member.via, []).append(member)
    if len(found) > fan_out:
        return found
    return {via: those for via, those in found.items() if len(those) > 1}


class NodeAsker:
    """Asks node servers for the leaves of one plan.

    Args:
        fan_out: How many are asked at most before they are asked through each other.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        budget: Budget,
        *,
        timeout_s: float,
        token: str | None,
        fan_out: int,
    ) -> None:
        self._leaves, self._budget, self._token = leaves, budget, token
        self._timeout_s, self._fan_out = timeout_s, fan_out
        self._began = time.monotonic()
        self._members: dict[str, list[Member]] = {}
        self._machines: dict[str, Machine] = {}
        self._parts: dict[Member, list[Part]] = {}
        self._told: dict[Member, list[UnionOutcome]] = {}
        self._failed: dict[Member, ProbingError] = {}

    def ask(self, groups: Mapping[str, Sequence[Member]]) -> Told:
        """What all members told; never raises for one that fails."""
        for those in groups.values():
            self._parts.update((member, [Part() for _ in self._leaves]) for member in those)
            self._told.update((member, []) for member in those)
            self._find(those)
        self._ask_machines()
        again = [m for m, error in self._failed.items() if error.code in LACKS_IT]
        for member in again:
            self._told.pop(member)
        outcomes = {member: self._outcome(member) for member in self._told}
        return Told(outcomes=outcomes, again=tuple(again))

    def _find(self, members: Sequence[Member]) -> None:
        """Where the node server of some members is asked."""
        try:
            url, key = rank_paths.split(members[0].endpoint)
            if not key:
                raise BadEndpoint(members[0].endpoint, "it is not behind a node server")
            found = node_server(url, from_env(), self._token)
        except ProbingError as error:
            self._failed.update(dict.fromkeys(members, error))
            return
        asked = tuple(
            UnionMember(
                key=rank_paths.split(m.endpoint)[1], rank=m.rank, host=m.host, pid=m.pid, job=m.job
            )
            for m in members
        )
        self._machines[url_of(found)] = Machine(address=found, members=asked)
        self._members[url_of(found)] = list(members)

    def _ask_machines(self) -> None:
        """All leaves of all that were found."""
        way = Way(place=place(), fan_out=self._fan_out)
        asker = TreeAsker(self._machines, [self._question(leaf) for leaf in self._leaves], way)
        asked = ask_nodes(
            list(self._machines),
            asker.ask,
            timeout_s=self._timeout_s,
            fan_out=self._fan_out,
            alike=self._kind,
            final=frozenset({UnionTooLarge.code}),
        )
        for reached in asked.values:
            for index, rows in enumerate(reached.value):
                self._take(index, rows)
        for url, error in asked.failed.items():
            self._failed.update(dict.fromkeys(self._members[url], error))

    def _question(self, leaf: Leaf) -> Question:
        request = UnionRequest(
            members=(),
            table=leaf.table.full_name,
            columns=leaf.columns,
            sql=leaf.sql(added=None),
            timeout_s=self._timeout_s,
            max_bytes=self._budget.limit,
        )
        return Question(request=request, combine=leaf.combine, is_repeated=leaf.is_repeated)

    def _kind(self, url: str) -> Hashable:
        return given_with(self._machines[url].address)

    def _take(self, index: int, given: Rows) -> None:
        """Keep the rows of a leaf with the first member of the machines that they are of."""
        leaf = self._leaves[index]
        first = self._members[given.accounts[0].url][0]
        # They are here already: whether they were too many is judged when all are.
        self._budget.take((first, leaf.table.name), size=given.rows.nbytes, rows=len(given.rows))
        self._parts[first][index] = Part(rows=given.rows)
        for account in given.accounts:
            those = self._members[account.url]
            for member, outcome in zip(those, account.members, strict=True):
                self._told[member].append(outcome)

    def _outcome(self, member: Member) -> Outcome[list[Part]]:
        """What became of a member, by the worst that became of it for any leaf."""
        told = self._told[member]
        error = self._failed.get(member)
        if error is not None:
            seconds, state = time.monotonic() - self._began, state_of(error)
            return Outcome(member=member, value=None, error=error, seconds=seconds, state=state)
        worst = next((one for one in told if one.state != "answered"), told[0])
        return Outcome(
            member=member,
            value=self._parts[member],
            error=wire.decode_error(worst.error.encode()) if worst.error is not None else None,
            seconds=worst.seconds,
            state=cast("State", worst.state),
            notes=tuple(dict.fromkeys(note for one in told for note in one.notes)),
        )
