"""The SQL workers of a node server: a few, for all processes of the machine together.

Rules of this file: a worker is made when it is asked for and goes when it is idle, as an agent's; a
statement that kills one is one client's error.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable

from ...messages import common as wire
from ...rundir.folders import ProcessFolder
from ...server.sql_worker.worker import SqlWorker
from ...settings import Settings

_MOST = 4


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
