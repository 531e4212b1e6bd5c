"""Has the answers to questions that are the same for all processes come by a few ways, ahead.

Rules of this file: only what reads. Nothing depends on it: a question whose answer has not come
this way is asked as if there were none.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InternalError, ProbingError
from ...messages import common as wire, rank_paths
from ...messages.limits import LARGE_ANSWER_BYTES
from ...messages.reading import Reading
from ...messages.tree import CollectAnswer, CollectRequest, NodeCollected, NodeKeys, Way
from ...reach.transport import Address, Held, ask, asked_as
from ...rundir.folders import RunDirectory
from .handing_on import given_with, node_at, node_server, place, require_leader, url_of
from .membership import Member
from .tree import FAN_OUT, Reached, ask_nodes

AT_AGENTS = frozenset({"acts", "armed", "jobs", "live", "settings"})
"""What only the agent of a process can answer, of what can be asked so."""
ROUTES = AT_AGENTS | {"members", "backtrace", "query", "status", "tables"}
"""What can be asked so."""
_TIME = 0.6
"""How much of the time there is for it; the rest is for who has not told anything by then."""
_SHARE = 0.9
"""How much of its time a node server is told of; the rest is for the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A node server, and the processes that are asked there."""

    address: Address
    keys: tuple[str, ...] = ()


class CollectAsker:
    """The same requests to node servers, the answers of their processes all at once.

    Args:
        targets: All that may be asked, by URL.
    """

    def __init__(
        self, targets: Mapping[str, Target], readings: Sequence[Reading], way: Way
    ) -> None:
        self._targets, self._readings, self._way = targets, tuple(readings), way

    def ask(self, urls: Sequence[str], limit_s: float) -> Reached[tuple[NodeCollected, ...]]:
        """The answers that the first has, or has of as many as it reaches; see `tree.Ask`."""
        first = self._targets[urls[0]]
        require_leader(first.address)  # who is silent is asked by himself, later
        request = CollectRequest(
            readings=self._readings,
            keys=first.keys,
            nodes=tuple(
                NodeKeys(node=node_at(self._targets[url].address), keys=self._targets[url].keys)
                for url in urls[1:]
            ),
            way=self._way,
            timeout_s=limit_s * _SHARE,
        )
        data = ask(
            first.address, "collect", body=request, timeout_s=limit_s, most_bytes=LARGE_ANSWER_BYTES
        )
        own, *others = wire.decode(CollectAnswer, data).nodes or (None,)
        if own is None:
            raise InternalError(f"{urls[0]} has told nothing")
        nodes = (dataclasses.replace(own, url=urls[0]), *others)
        return Reached(value=nodes, nodes=tuple(node.url for node in nodes))

    def kind(self, url: str) -> Hashable:
        """See `handing_on.given_with`."""
        return given_with(self._targets[url].address)


def is_ahead(members: Sequence[Member], fan_out: int = FAN_OUT) -> bool:
    """Whether any answer of members comes ahead."""
    return len(_by_node(members)) > fan_out


def _by_node(members: Sequence[Member]) -> dict[str, list[Member]]:
    """The members behind each node server."""
    behind: dict[str, list[Member]] = {}
    for member in members:
        if member.via is not None and member.state == "seen":
            behind.setdefault(rank_paths.split(member.endpoint)[0], []).append(member)
    return behind


def of_members(
    members: Sequence[Member],
    readings: Sequence[Reading],
    directory: RunDirectory,
    *,
    timeout_s: float,
    token: str | None,
    fan_out: int = FAN_OUT,
) -> dict[str, Held]:
    """The answers of members, by their endpoints; none where node servers are few."""
    behind = _by_node(members)
    if len(behind) <= fan_out:
        return {}
    targets = {}
    for url, those in behind.items():
        address = _address(url, directory, token)
        if address is not None:
            keys = tuple(rank_paths.split(m.endpoint)[1] for m in those)
            targets[url_of(address)] = Target(address=address, keys=keys)
    return {
        rank_paths.endpoint_at(url, key): held
        for (url, key), held in _collect(targets, readings, timeout_s, fan_out).items()
    }


def of_nodes(
    words: Sequence[str],
    reading: Reading,
    directory: RunDirectory,
    *,
    timeout_s: float,
    token: str | None,
    fan_out: int = FAN_OUT,
    told: Collection[str] = (),
) -> dict[str, Held]:
    """The answers of node servers themselves, by what they are called; none where they are few.

    Args:
        told: Those that others named, and not the user.
    """
    if len(words) <= fan_out:
        return {}
    until = time.monotonic() + timeout_s * _TIME
    addresses = {
        word: _address(word, directory, token, is_told=word in told)
        for word in words
        if time.monotonic() < until
    }
    found = {word: address for word, address in addresses.items() if address is not None}
    targets = {url_of(address): Target(address=address) for address in found.values()}
    collected = _collect(targets, [reading], timeout_s, fan_out)
    return {
        word: held
        for word, address in found.items()
        if (held := collected.get((url_of(address), ""))) is not None
    }


def _collect(
    targets: Mapping[str, Target], readings: Sequence[Reading], timeout_s: float, fan_out: int
) -> dict[tuple[str, str], Held]:
    """What came in a share of the time, by node and process."""
    asker = CollectAsker(targets, readings, Way(place=place(), fan_out=fan_out))
    asked = ask_nodes(
        list(targets), asker.ask, timeout_s=timeout_s * _TIME, fan_out=fan_out, alike=asker.kind
    )
    found: dict[tuple[str, str], Held] = {}
    for node in (node for reached in asked.values for node in reached.value):
        for answer in node.answers:
            if answer.key not in (targets[node.url].keys or ("",)):
                continue
            try:
                reading = readings[answer.reading]
                body = base64.b64decode(answer.body, validate=True)
            except (IndexError, binascii.Error):
                continue
            place_of = found.setdefault((node.url, answer.key), {})
            place_of[_key_of(reading)] = body
    return found


def _key_of(reading: Reading) -> tuple[Any, ...]:
    """How its answer is found by who asks for it."""
    return asked_as(
        reading.route,
        body=reading.query,
        flags=reading.flags,
        times=reading.times,
        **reading.names,
    )


def _address(
    url: str, directory: RunDirectory, token: str | None, *, is_told: bool = False
) -> Address | None:
    """Where a node server is asked; None where that is asked by itself, to tell what is wrong."""
    try:
        return node_server(url, directory, token, is_told=is_told)
    except ProbingError:
        return None
