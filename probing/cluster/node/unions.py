"""One statement over many processes of the machine, for a node server.

Rules of this file: SQL never runs in the server: each request has a process of its own, which reads
the rings of all of them and is killed when its time is over.
"""

from __future__ import annotations

import os

from aiohttp import web

from ...linux import limited_memory
from ...messages import common as wire
from ...messages.about.union import UnionRequest
from ...rundir.folders import RunDirectory
from ...server.sql_worker.single_answers import SingleAnswers

_TOKENS = ("PROBING_TOKEN", "PROBING_READ_TOKEN")


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
