"""One SQL worker process and the two pipes to it.

Rules of this file: runs on the agent's event loop, inside the training process, and touches
nothing that the whole process shares: no signal handler, no child watcher, no wait for any
child but its own. Pipes never block; every wait has an end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

from ...errors import BadRequest, SqlWorkerDied
from ...linux import limited_memory, process
from ...messages import common as wire
from ...own_files import places_of
from ...rundir.folders import ProcessFolder
from ...sql import frames as sql_frames
from ...sql.frames import WorkerRequest
from .apart import ProcessApart

_STALL_S = 10.0
"""How long a worker may take for the next piece of an answer that it has in hand."""
_START_S = 300.0
"""How long a worker may take until it can be asked; one that takes more is given up."""
_END_S = 2.0
_TOLD_S = 10.0
"""How long the parent of a worker that has ended may take to tell how, on a busy machine."""
_LARGE = 0.5
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PROBING_HOME")
_OWN_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "1",
    **limited_memory.ENVIRONMENT,
}


borrowed_places: tuple[str, ...] = ()
"""Folders that hold what is not installed here: the operator's, who attached from there."""


_late: list[ProcessApart] = []
"""Killed workers that nobody waits for any more, to be let go once they are gone."""


class WorkerProcess:
    """A running SQL worker.

    Attributes:
        memory_mib: What it may hold; its limits were set by it.
        is_free: Whether it has nothing in hand, so that it may be asked again, or for the first
            time once it has started.
        asked: How many statements it was asked to run.
    """

    def __init__(self, folder: ProcessFolder | None, memory_mib: int) -> None:
        """Start the process; `wait_ready` says when it can be asked.

        Args:
            folder: Whose tables are asked; None where each question says whose.

        Raises:
            SqlWorkerDied: It cannot be started.
        """
        places = [*places_of("probing", "duckdb", "pyarrow", "numpy"), *borrowed_places]
        whose = sql_frames.NO_FOLDER if folder is None else str(folder.path)
        try:
            self._apart = ProcessApart([whose, str(memory_mib), *places], _environment())
        except OSError as error:
            raise SqlWorkerDied(str(error), has_begun=False) from error
        self._requests, self._answers = self._apart.requests.fileno(), self._apart.answers.fileno()
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        self.memory_mib = memory_mib
        self.is_free = True
        self.asked = 0
        self._is_ready = False
        self._started = time.monotonic()
        self._arrived = bytearray()

    @property
    def pid(self) -> int:
        """Its process id; 0 while it is not known yet."""
        return self._apart.pid

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self.is_gone() and (not self.pid or process.start_time(self.pid) is not None)

    def is_large(self) -> bool:
        """Whether it holds so much that the next statement might find no room."""
        limit_kib = self.memory_mib * 1024
        held = process.status(self.pid).get("VmRSS", "").split() if self.pid else []
        return bool(held) and int(held[0]) > _LARGE * limit_kib

    def is_gone(self) -> bool:
        """Whether it has ended; one that is dying is gone only with its last thread."""
        return self._apart.is_gone()

    def has_failed(self) -> bool:
        """Whether it has ended by itself: not by whoever kills, such as the kernel's OOM killer."""
        return self._apart.code not in (None, -signal.SIGKILL)

    @property
    def is_starting(self) -> bool:
        """Whether it is on its way to its first request, and may still come there."""
        is_late = time.monotonic() - self._started > _START_S
        return self.is_free and not (self._is_ready or is_late)

    async def wait_ready(self) -> None:
        """Wait until it takes requests; who waits no longer holds up nothing of it.

        Raises:
            RemoteError: It cannot do its work, and says why.
            SqlWorkerDied: It ended.
        """
        while not (self.is_gone() or self.pid):
            await _wait_for(self._apart.fileno(), is_writing=False)
        if not self._is_ready:
            self._check(await self._receive(), sql_frames.READY)
            self._is_ready = True

    async def ask(self, request: WorkerRequest) -> None:
        """Have a statement run, up to the moment at which its rows are about to come.

        Raises:
            RemoteError: The statement has no answer.
            SqlWorkerDied: It killed the worker.
        """
        self.is_free = False
        self.asked += 1
        await self._send(sql_frames.encode_frame(wire.encode(request)))
        self._check(await self._receive(), sql_frames.OK)

    async def next_piece(self) -> bytes:
        """The next piece of the answer; empty after the last.

        Raises:
            SqlWorkerDied: The rest will not come.
        """
        try:
            piece = await asyncio.wait_for(self._receive(), _STALL_S)
        except asyncio.TimeoutError:
            raise SqlWorkerDied("it stopped in the middle of its answer") from None
        self.is_free = not piece
        return piece

    def kill(self) -> None:
        """End it at once; who waits for it is told, and `is_gone` says when it is so."""
        self._apart.kill()

    def release(self) -> None:
        """Close the pipes, once nobody waits for it any more."""
        self._apart.release()

    def wait(self) -> None:
        """Wait until it is gone, after `kill`; on a busy machine it may be so later."""
        if not self._apart.wait(_END_S):  # in a wait of the kernel's
            _late[:] = [one for one in (*_late, self._apart) if not one.is_gone()]

    def _check(self, status: bytes, expected: bytes) -> None:
        """Raise the error that came instead of what was expected."""
        if status == expected:
            return
        self.is_free = self._is_ready
        try:
            raise wire.decode_error(status)
        except BadRequest:
            raise SqlWorkerDied("it sent what makes no sense") from None

    async def _receive(self) -> bytes:
        """The next frame; what has come of it stays here for who asks after one that gave up."""
        head = sql_frames.LENGTH.size
        await self._read_up_to(head)
        (size,) = sql_frames.LENGTH.unpack_from(self._arrived)
        await self._read_up_to(head + size)
        frame = bytes(self._arrived[head:])
        self._arrived.clear()
        return frame

    async def _read_up_to(self, size: int) -> None:
        """Have that many bytes of a frame there, and none of the next."""
        while len(self._arrived) < size:
            await _wait_for(self._answers, is_writing=False)
            part = os.read(self._answers, size - len(self._arrived))
            if not part:
                raise SqlWorkerDied(await self._how_it_ended(), has_begun=self._is_ready)
            self._arrived += part

    async def _send(self, data: bytes) -> None:
        """Write all of it."""
        try:
            while data:
                await _wait_for(self._requests, is_writing=True)
                data = data[os.write(self._requests, data) :]
        except BrokenPipeError:
            raise SqlWorkerDied(await self._how_it_ended()) from None

    async def _how_it_ended(self) -> str:
        """The reason in words, once the process is gone."""
        self.is_free = False
        now = asyncio.get_running_loop().time
        began = now()
        while not self.is_gone():
            if now() - began > (_END_S if self.is_alive() else _TOLD_S):
                return "it closed its pipe"
            await asyncio.sleep(0.005)
        return self._apart.how_it_ended()


async def _wait_for(fd: int, *, is_writing: bool) -> None:
    """Wait until a pipe can be read, or written."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = loop.add_reader, loop.remove_reader
    if is_writing:
        add, remove = loop.add_writer, loop.remove_writer
    add(fd, _set, ready)
    try:
        await ready
    finally:
        remove(fd)


def _set(ready: asyncio.Future[None]) -> None:
    """Let the waiter go on, if it still waits."""
    if not ready.done():
        ready.set_result(None)


def _environment() -> dict[str, str]:
    """What the worker sees: nothing that would put an agent into it."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return kept | _OWN_VARIABLES
