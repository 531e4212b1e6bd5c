"""A process of its own for each statement over many processes.

Rules of this file: runs on the event loop of a server. What is asked goes in on stdin, the answer
comes out of stdout, and the process is killed when its time is over or nobody waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping

from ...errors import QueryTimedOut, SqlWorkerDied
from ...messages import common as wire

_AT_ONCE = 2
_GRACE_S = 1.0


class SingleAnswers:
    """Runs a module once for each question; a few at a time, the others wait.

    Args:
        module: What is run; its exit code is 1 where the answer is an error.
        environment: What it sees.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module, self._environment = module, environment
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.subprocess.Process] = set()

    def close(self) -> None:
        """End what runs."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def answer(self, body: bytes, limit_s: float) -> bytes:
        """What the process answers.

        Raises:
            ProbingError: There is no answer.
        """
        try:
            data, code = await asyncio.wait_for(self._run(body), limit_s + _GRACE_S)
        except asyncio.TimeoutError:
            raise QueryTimedOut(limit_s) from None
        if code == 1:
            raise wire.decode_error(data)
        if code != 0:
            raise SqlWorkerDied(f"signal {-code}" if code < 0 else f"exit code {code}")
        return data

    async def _run(self, body: bytes) -> tuple[bytes, int]:
        """What the process answers, and how it ended."""
        async with self._room:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(self._environment),
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
