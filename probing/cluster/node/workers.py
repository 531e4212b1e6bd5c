"""What runs SQL for a node server: a few workers, and a process for what is asked of all at once.

Rules of this file: a worker is made when it is asked for and goes when it is idle, as an agent's; a
statement that kills one is one client's error. A statement over many processes has a process of its
own, which reads the rings of all of them and is killed when its time is over.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable

from aiohttp import web

from ...linux import limited_memory
from ...messages import common as wire
from ...messages.about.union import UnionRequest
from ...rundir.folders import ProcessFolder, RunDirectory
from ...server.sql_worker.single_answers import SingleAnswers
from ...server.sql_worker.worker import SqlWorker
from ...settings import Settings

_MOST = 4
_TOKENS = ("PROBING_TOKEN", "PROBING_READ_TOKEN")


class Workers:
    """Runs statements, each over the tables of one process."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        number = max(1, min(_MOST, os.cpu_count() or 1))
        self._workers = [SqlWorker(None, settings) for _ in range(number)]
        self._waiting = [0] * number

    async def query(
        self, request: wire.QueryRequest, folder: ProcessFolder
    ) -> AsyncGenerator[bytes, None]:
        """The pieces of an Arrow IPC stream, by the worker that has least to do.

        Raises:
            ProbingError: See `SqlWorker.query`.
        """
        index = min(range(len(self._workers)), key=self._waiting.__getitem__)
        self._waiting[index] += 1
        pieces = self._workers[index].query(request, folder)
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._waiting[index] -= 1
            await pieces.aclose()

    def close(self) -> None:
        """End all of them."""
        for worker in self._workers:
            worker.close()


class Unions:
    """The route ``/v1/union``."""

    def __init__(self, directory: RunDirectory) -> None:
        module = "probing.cluster.union.node_worker"
        self._answers = SingleAnswers(module, _environment(directory))

    def close(self) -> None:
        """End what runs."""
        self._answers.close()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """See the route.

        Raises:
            ProbingError: The statement has no answer.
        """
        body = await request.read()
        question = wire.decode_request(UnionRequest, body)
        data = await self._answers.answer(body, question.timeout_s)
        return web.Response(body=data, content_type=wire.ARROW_TYPE)


def _environment(directory: RunDirectory) -> dict[str, str]:
    """What the process sees: no token but the one that its work names."""
    kept = {name: value for name, value in os.environ.items() if name not in _TOKENS}
    # With others to look into, where they are follows from the rest of the environment.
    home = {} if directory.others else {"PROBING_HOME": str(directory.path)}
    return {**kept, **limited_memory.ENVIRONMENT, "PROBING": "0", **home}
