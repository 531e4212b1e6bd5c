"""One statement over many processes of the machine, for a node server.

Rules of this file: SQL never runs in the server: each request has a process of its own, which reads
the rings of all of them and is killed when its time is over. A few run at a time; the others wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from aiohttp import web

from ...errors import QueryTimedOut, SqlWorkerDied
from ...linux import limited_memory
from ...messages import common as wire
from ...messages.about.union import UnionRequest
from ...rundir.folders import RunDirectory

_AT_ONCE = 2
_GRACE_S = 1.0
_TOKENS = ("PROBING_TOKEN", "PROBING_READ_TOKEN")


class Unions:
    """The route ``/v1/union``."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.subprocess.Process] = set()

    def close(self) -> None:
        """End what runs."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """See the route.

        Raises:
            ProbingError: The statement has no answer.
        """
        body = await request.read()
        question = wire.decode(UnionRequest, body, is_finite=True)
        return await self._answer(body, question.timeout_s)

    async def _answer(self, body: bytes, limit_s: float) -> web.StreamResponse:
        """The answer of a process of its own."""
        try:
            data, code = await asyncio.wait_for(self._run(body), limit_s + _GRACE_S)
        except asyncio.TimeoutError:
            raise QueryTimedOut(limit_s) from None
        if code == 1:
            raise wire.decode_error(data)
        if code != 0:
            raise SqlWorkerDied(f"signal {-code}" if code < 0 else f"exit code {code}")
        return web.Response(body=data, content_type=wire.ARROW_TYPE)

    async def _run(self, body: bytes) -> tuple[bytes, int]:
        """What the process answers, and how it ended."""
        async with self._room:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "probing.cluster.union.node_worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=_environment(self._directory),
            )
            self._running.add(process)
            try:
                data, _ = await process.communicate(body)
                return data, await process.wait()
            finally:
                self._running.discard(process)
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()


def _environment(directory: RunDirectory) -> dict[str, str]:
    """What the process sees: no token but the one that its work names."""
    kept = {name: value for name, value in os.environ.items() if name not in _TOKENS}
    own = {"PROBING": "0", "PROBING_HOME": str(directory.path)}
    return {**kept, **limited_memory.ENVIRONMENT, **own}
