"""Asks one node server for its own processes, or for those of a group of machines.

Rules of this file: the same for whoever asks, the command or a node server that hands on. An
answer that does not account for every process of each machine it tells of is no answer.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from ...errors import InternalError
from ...messages import common as wire
from ...messages.limits import GRACE_S, LARGE_ANSWER_BYTES
from ...messages.tree import NODES_KEY, NodeAccount, NodeAccounts, NodeMembers, TreeRequest, Way
from ...messages.union import MEMBERS_KEY, UnionMember, UnionOutcomes, UnionRequest
from ...reach.transport import Address, ask
from ...sql.answer import Answer
from ..job.handing_on import node_at, require_leader
from ..job.tree import Reached

T = TypeVar("T")

_LEAST_S = 0.1
_SHARE = 0.9
"""How much of its time a leader is told of; the rest is for the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node server and the processes that are asked there."""

    address: Address
    members: tuple[UnionMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One statement to node servers.

    Attributes:
        request: It; whose processes, and how long it may take, is filled in.
        combine: See `tree_wire.TreeRequest`.
        is_repeated: See there.
    """

    request: UnionRequest
    combine: str | None
    is_repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The answer to one question: rows of some machines, and what became of their processes."""

    rows: pa.Table
    accounts: tuple[NodeAccount, ...]

    @property
    def urls(self) -> tuple[str, ...]:
        """The machines."""
        return tuple(account.url for account in self.accounts)


class TreeAsker:
    """Some statements to node servers, each of which answers all of them or none.

    Args:
        machines: All that may be asked, by URL.
        is_for_others: Whether somebody else waits, who asks those that are silent himself.
    """

    def __init__(
        self,
        machines: Mapping[str, Machine],
        questions: Sequence[Question],
        way: Way,
        *,
        is_for_others: bool = False,
    ) -> None:
        self._machines, self._questions, self._way = machines, questions, way
        self._is_for_others = is_for_others

    def ask(self, urls: Sequence[str], limit_s: float) -> Reached[tuple[Rows, ...]]:
        """What the first says, or as many as it reaches, to each question; see `job.tree.Ask`."""
        until = time.monotonic() + limit_s
        if len(urls) > 1 or self._is_for_others:
            require_leader(self._machines[urls[0]].address)
        given = []
        for question in self._questions:
            left_s = max(_LEAST_S, until - time.monotonic())
            given.append(self._ask(question, urls, left_s))
        reached = {rows.urls for rows in given}
        if len(reached) != 1:
            raise InternalError(f"{urls[0]} has not reached the same machines each time")
        return Reached(value=tuple(given), nodes=reached.pop())

    def _ask(self, question: Question, urls: Sequence[str], limit_s: float) -> Rows:
        """One question."""
        if len(urls) == 1:
            given = self._one(question, urls[0], limit_s)
        else:
            given = self._through(question, urls, limit_s)
        for account in given.accounts:
            machine = self._machines.get(account.url)
            keys = [member.key for member in machine.members] if machine else None
            if keys != [outcome.key for outcome in account.members]:
                raise InternalError(f"{urls[0]} has not told what became of every process")
        return given

    def _one(self, question: Question, url: str, limit_s: float) -> Rows:
        """Those of one machine."""
        machine = self._machines[url]
        request = dataclasses.replace(question.request, members=machine.members, timeout_s=limit_s)
        data = ask(
            machine.address,
            "union",
            body=request,
            timeout_s=limit_s + GRACE_S,
            most_bytes=LARGE_ANSWER_BYTES,
        )
        rows, told = _read(data, MEMBERS_KEY, UnionOutcomes)
        return Rows(rows=rows, accounts=(NodeAccount(url=url, members=told.members),))

    def _through(self, question: Question, urls: Sequence[str], limit_s: float) -> Rows:
        """Those of a machine and of others that it asks."""
        machine = self._machines[urls[0]]
        request = TreeRequest(
            own=dataclasses.replace(
                question.request, members=machine.members, timeout_s=limit_s * _SHARE
            ),
            nodes=tuple(self._named(url) for url in urls[1:]),
            way=self._way,
            combine=question.combine,
            is_repeated=question.is_repeated,
        )
        data = ask(
            machine.address,
            "union_tree",
            body=request,
            timeout_s=limit_s,
            most_bytes=LARGE_ANSWER_BYTES,
        )
        rows, told = _read(data, NODES_KEY, NodeAccounts)
        own, *others = told.nodes
        return Rows(rows=rows, accounts=(dataclasses.replace(own, url=urls[0]), *others))

    def _named(self, url: str) -> NodeMembers:
        machine = self._machines[url]
        return NodeMembers(node=node_at(machine.address), members=machine.members)


def _read(data: bytes, key: bytes, cls: type[T]) -> tuple[pa.Table, T]:
    """The rows of an answer, and what its metadata tell."""
    rows = Answer.from_ipc(data).to_arrow()
    metadata = dict(rows.schema.metadata or {})
    told = wire.decode(cls, metadata.pop(key, b""))
    return rows.replace_schema_metadata(metadata), told
