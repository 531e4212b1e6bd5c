"""The SQL workers of a node server: a few, for all processes of the machine together.

Rules of this file: a worker is made when it is asked for and goes when it is idle, as an agent's; a
statement that kills one is one client's error. One that begins like an earlier one goes where
it was answered before if nobody waits there: that worker has its rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable

from ...messages import common as wire
from ...rundir.folders import ProcessFolder
from ...server.sql_worker.worker import SqlWorker
from ...server.sql_worker.worker_process import NICENESS
from ...settings import Settings

_MOST = 4
_REMEMBERED = 64
_LIKE = 100
"""So many characters of two statements are compared, without their numbers."""
_NUMBER = re.compile(r"\d+")


class Workers:
    """Runs statements, each over the tables of one process.

    Args:
        settings: Those in force at the moment.
        niceness: How far the workers stand behind everybody else.
    """

    def __init__(self, settings: Callable[[], Settings], *, niceness: int = NICENESS) -> None:
        number = max(1, min(_MOST, os.cpu_count() or 1))
        self._workers = [SqlWorker(None, settings, niceness=niceness) for _ in range(number)]
        self._waiting = [0] * number
        self._before: dict[tuple[str, str], int] = {}

    async def query(
        self, request: wire.QueryRequest, folder: ProcessFolder
    ) -> AsyncGenerator[bytes, None]:
        """The pieces of an Arrow IPC stream, by the worker that has least to do.

        Raises:
            ProbingError: See `SqlWorker.query`.
        """
        index = self._choose(str(folder.path), request.sql)
        self._waiting[index] += 1
        pieces = self._workers[index].query(request, folder)
        try:
            async for piece in pieces:
                yield piece
        finally:
            self._waiting[index] -= 1
            await pieces.aclose()

    def _choose(self, folder: str, sql: str) -> int:
        """Which worker answers."""
        asked = (folder, _NUMBER.sub("", sql[:_LIKE]))
        index = self._before.pop(asked, None)
        if index is None or self._waiting[index]:
            index = min(range(len(self._workers)), key=self._waiting.__getitem__)
        self._before[asked] = index
        if len(self._before) > _REMEMBERED:
            self._before.pop(next(iter(self._before)))
        return index

    def close(self) -> None:
        """End all of them."""
        for worker in self._workers:
            worker.close()
