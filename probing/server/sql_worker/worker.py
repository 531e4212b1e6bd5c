"""The SQL worker as the agent sees it: started when it is needed, killed when it must be.

Rules of this file: runs on the agent's event loop, inside the training process, and imports no
SQL engine. One statement runs at a time. A worker that is still sending its answer to a slow
client does not hold up the next statement: that one gets a new worker. Where one has ended, the
next is started at once and not with the next statement: most of the wait is for what it imports.
One that is still starting as a statement's time ends is kept: on a loaded machine no statement
would else find it any further.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, Callable

from ...errors import (
    Busy,
    QueryTimedOut,
    RemoteError,
    SqlTooLarge,
    SqlWorkerDied,
    SqlWorkerRests,
)
from ...messages import common as wire
from ...rundir.folders import ProcessFolder
from ...settings import Settings
from ...sql.frames import WorkerRequest
from ...sql.gate import check_text
from .worker_process import WorkerProcess

_KILL_AFTER_S = 1.0
"""How long after its deadline a statement gets to end by itself."""
_REAP_S = 0.02
_MOST_ENDS = 5
_REST_S = 10.0


class SqlWorker:
    """Runs statements in helper processes, each one client's own risk.

    Args:
        folder: The run folder of this process, whose tables are asked; None where each question
            says whose.
        settings: The settings in force at the moment.
        rest_s: Within how long the worker may end `_MOST_ENDS` times before it is left alone for
            the rest of it.
    """

    def __init__(
        self,
        folder: ProcessFolder | None,
        settings: Callable[[], Settings],
        *,
        rest_s: float = _REST_S,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._turn = asyncio.Lock()
        self._idle: WorkerProcess | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._in_use: set[WorkerProcess] = set()
        self._killed: list[WorkerProcess] = []
        self._rest_s = rest_s
        self._ends: deque[float] = deque(maxlen=_MOST_ENDS)

    async def query(
        self, request: wire.QueryRequest, folder: ProcessFolder | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The pieces of an Arrow IPC stream; close the generator when you leave it early.

        Args:
            folder: Whose tables are asked; this process's if not given.

        Raises:
            ProbingError: Before the first piece: the statement has no answer.
            SqlWorkerRests: It has ended too often of late.
            SqlWorkerDied: Later: the answer breaks off.
        """
        settings = self._settings()
        check_text(request.sql, settings.max_sql_bytes, "PROBING_MAX_SQL_BYTES")
        limit_s = min(request.timeout_s or settings.query_timeout_s, settings.query_timeout_s)
        deadline = asyncio.get_running_loop().time() + limit_s
        await self._take_turn(limit_s)
        worker = None
        try:
            try:
                worker = self._take_worker(settings)
                limits = _question(request, settings, folder)
                if not await self._has_room(worker, limits, limit_s, deadline):
                    self._put_back(worker, settings)
                    worker = None
                    worker = self._take_worker(settings)
                    await self._run(worker, limits, limit_s, deadline)
            finally:
                self._turn.release()
            while piece := await worker.next_piece():
                yield piece
        except SqlWorkerDied:
            self._ends.append(asyncio.get_running_loop().time())
            raise
        finally:
            if worker is not None:
                self._put_back(worker, settings)

    def close(self) -> None:
        """Kill every worker and wait for its end; statements in hand end with an error."""
        idle = self._take_idle()
        if idle is not None:
            self._killed.append(idle)
            idle.release()
        for worker in (*self._in_use, *self._killed):
            worker.kill()
            worker.wait()
        self._in_use.clear()
        self._killed.clear()

    async def _has_room(
        self, worker: WorkerProcess, question: WorkerRequest, limit_s: float, deadline: float
    ) -> bool:
        """Run a statement; False where a new worker has more room for it, or may not die of it.

        An allocator keeps what earlier statements had, and what one of them has left behind may
        end the worker in the next.
        """
        try:
            await self._run(worker, question, limit_s, deadline)
        except SqlWorkerDied:
            if worker.asked == 1 or not worker.has_failed():
                raise
            self._ends.append(asyncio.get_running_loop().time())
            return False
        except RemoteError as error:
            if worker.asked == 1 or error.code != SqlTooLarge.code:
                raise
            return False
        return True

    async def _run(
        self,
        worker: WorkerProcess,
        question: WorkerRequest,
        limit_s: float,
        deadline: float,
    ) -> None:
        """Have the statement run, and see to it that it ends in time."""
        now = asyncio.get_running_loop().time
        try:
            await asyncio.wait_for(worker.wait_ready(), deadline - now())
            left_s = deadline - now()
            question = dataclasses.replace(question, timeout_s=left_s)
            await asyncio.wait_for(worker.ask(question), left_s + _KILL_AFTER_S)
        except asyncio.TimeoutError:
            worker.is_free = is_starting = worker.is_starting
            raise QueryTimedOut(limit_s, is_starting=is_starting) from None
        except RemoteError as error:
            if error.code == SqlTooLarge.code:
                worker.is_free = False  # what it could not finish may still hold its memory
            if error.code != QueryTimedOut.code:
                raise
            # One that was interrupted keeps for a while what it had made until then.
            worker.is_free = not (error.detail.get("is_stuck", False) or worker.is_large())
            raise QueryTimedOut(limit_s) from None

    async def _take_turn(self, limit_s: float) -> None:
        """Wait until no other statement runs."""
        try:
            await asyncio.wait_for(self._turn.acquire(), limit_s)
        except asyncio.TimeoutError:
            raise Busy("SQL statement", 1) from None

    def _take_worker(self, settings: Settings) -> WorkerProcess:
        """The idle worker, or a new one."""
        worker = self._take_idle()
        if worker is not None:
            if worker.is_alive() and worker.memory_mib == settings.query_memory_mib:
                self._in_use.add(worker)
                return worker
            self._kill(worker)
        self._check_rest()
        worker = WorkerProcess(self._folder, settings.query_memory_mib)
        self._in_use.add(worker)
        return worker

    def _check_rest(self) -> None:
        """Start no worker while one after the other ends: each start costs the training.

        Raises:
            SqlWorkerRests: It is so.
        """
        if len(self._ends) == _MOST_ENDS:
            left_s = self._ends[0] + self._rest_s - asyncio.get_running_loop().time()
            if left_s > 0:
                raise SqlWorkerRests(_MOST_ENDS, self._rest_s, left_s)

    def _put_back(self, worker: WorkerProcess, settings: Settings) -> None:
        """Keep a worker that can be asked again; kill any other, and start the next one."""
        if worker not in self._in_use:  # closed meanwhile
            worker.release()
            return
        self._in_use.discard(worker)
        if worker.is_free and self._idle is None:
            self._keep(worker, settings)
            return
        self._kill(worker)
        if self._idle is None:
            with contextlib.suppress(SqlWorkerRests, SqlWorkerDied):  # who asks next is told
                self._check_rest()
                self._keep(WorkerProcess(self._folder, settings.query_memory_mib), settings)

    def _keep(self, worker: WorkerProcess, settings: Settings) -> None:
        """Have a worker wait for the next statement."""
        self._idle = worker
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(settings.worker_idle_s, self._end_idle)

    def _end_idle(self) -> None:
        """End the worker that nobody has asked for a while."""
        worker = self._take_idle()
        if worker is not None:
            self._kill(worker)

    def _kill(self, worker: WorkerProcess) -> None:
        """End a worker without waiting: giving back much memory takes the kernel a while."""
        worker.kill()
        worker.release()
        self._killed.append(worker)
        self._reap()

    def _reap(self) -> None:
        """Look after killed workers until they are gone."""
        self._killed = [worker for worker in self._killed if not worker.is_gone()]
        if self._killed:
            asyncio.get_running_loop().call_later(_REAP_S, self._reap)

    def _take_idle(self) -> WorkerProcess | None:
        """Take the idle worker out of its place."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        worker, self._idle, self._idle_timer = self._idle, None, None
        return worker


def _question(
    request: wire.QueryRequest, settings: Settings, folder: ProcessFolder | None
) -> WorkerRequest:
    """The statement with the limits that apply to it."""
    asked = settings.query_max_rows if request.max_rows is None else request.max_rows
    return WorkerRequest(
        sql=request.sql,
        timeout_s=settings.query_timeout_s,
        max_rows=max(0, min(asked, settings.query_max_rows)),
        max_bytes=settings.query_max_bytes,
        memory_mib=settings.query_memory_mib,
        max_sql_bytes=settings.max_sql_bytes,
        folder="" if folder is None else str(folder.path),
    )
