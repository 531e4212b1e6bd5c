"""The same requests of many processes at once, for a node server.

Rules of this file: only what reads, and what its own routes answer. What has no answer in time, or
an error, is left out: whoever asks then asks for it by itself, and is told why.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ...errors import BadRequest, ProbingError
from ...messages import common as wire
from ...messages.reading import Reading
from ...messages.tree import CollectAnswer, Collected, CollectRequest, NodeCollected
from ...rundir.folders import RunDirectory
from ..job.ahead import AT_AGENTS, ROUTES, CollectAsker, Target
from ..job.handing_on import reachable
from ..job.tree import FAN_OUTS, ask_nodes
from .ranks import Ranks
from .roster import Roster

_AT_ONCE = 16
_AT_AGENTS = 256
"""Agents may wait for the end of a step, which each of them is to hear of before it has come."""
_THREADS = 4
_SHARE = 0.8


class Collecting:
    """The route ``/v1/collect``."""

    def __init__(self, directory: RunDirectory, roster: Roster, ranks: Ranks) -> None:
        self._directory, self._roster, self._ranks = directory, roster, ranks
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._agents_room = asyncio.Semaphore(_AT_AGENTS)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="collect")

    def close(self) -> None:
        """Wait for nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: CollectRequest, *, token: str, listen: str) -> CollectAnswer:
        """See the route.

        Args:
            token: What it was asked with.
            listen: Where this node server listens.

        Raises:
            BadRequest: What is asked for is none of the routes that can be.
        """
        if request.way.fan_out not in FAN_OUTS or not ROUTES.issuperset(
            reading.route for reading in request.readings
        ):
            raise BadRequest("this cannot be collected")
        loop = asyncio.get_running_loop()
        others = loop.run_in_executor(self._threads, self._others, request, token, listen)
        own = await self._own(request)
        return CollectAnswer(nodes=(NodeCollected(url="", answers=own), *await others))

    async def _own(self, request: CollectRequest) -> tuple[Collected, ...]:
        """The answers of this machine."""
        asked = [
            (index, reading, key)
            for index, reading in enumerate(request.readings)
            for key in (("",) if reading.route == "members" else request.keys)
        ]
        bodies = await asyncio.gather(
            *(self._body(reading, key, request.timeout_s) for _, reading, key in asked)
        )
        return tuple(
            Collected(key=key, reading=index, body=base64.b64encode(body).decode())
            for (index, _, key), body in zip(asked, bodies, strict=True)
            if body is not None
        )

    async def _body(self, reading: Reading, key: str, limit_s: float) -> bytes | None:
        """One answer; None where there is none."""
        try:
            return await asyncio.wait_for(self._read(reading, key), limit_s)
        except (ProbingError, asyncio.TimeoutError):
            return None

    async def _read(self, reading: Reading, key: str) -> bytes:
        async with self._agents_room if reading.route in AT_AGENTS else self._room:
            if reading.route == "members":
                with_states = "states" in reading.flags
                found = await asyncio.to_thread(self._roster.members, with_states=with_states)
                return wire.encode(found)
            return await self._ranks.read(reading, key)

    def _others(self, request: CollectRequest, token: str, listen: str) -> Sequence[NodeCollected]:
        """The answers of other machines."""
        keys = {entry.node.url: entry.keys for entry in request.nodes}
        addresses = reachable(
            [entry.node for entry in request.nodes],
            self._directory,
            token=token,
            listen=listen,
            asker=request.way.place,
        )
        targets = {
            url: Target(address=address, keys=keys[url]) for url, address in addresses.items()
        }
        asker = CollectAsker(targets, request.readings, request.way)
        limit_s = request.timeout_s * _SHARE
        asked = ask_nodes(list(targets), asker.ask, timeout_s=limit_s, fan_out=request.way.fan_out)
        return [node for reached in asked.values for node in reached.value]
