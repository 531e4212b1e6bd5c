"""The questions to a process for a program with an event loop: the same ones, to be awaited.

Rules of this file: no question is written twice. Each runs in a thread of the loop's own pool; who
stops waiting for one leaves it to its time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from ..messages.limits import DEFAULT_TIMEOUT_S
from .process import Process, connect

if TYPE_CHECKING:
    from ..cluster.ranks.slow.stragglers import StragglerReport
    from ..cluster.union.query import UnionAnswer
    from ..diagnosis.doctor.report import Report
    from ..diagnosis.hang.evidence import Verdict
    from ..messages.common import EvalResult
    from ..sql.answer import Answer
    from .ranks import Job

P = ParamSpec("P")
T = TypeVar("T")


def _twin(
    method: Callable[Concatenate[Process, P], T],
) -> Callable[Concatenate[AsyncProcess, P], Awaitable[T]]:

    @functools.wraps(method)
    async def ask(self: AsyncProcess, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.process, *args, **kwargs)

    return ask


class AsyncProcess:
    """A process that can be asked from coroutines; its methods are those of `Process`.

    Attributes:
        process: The same process for the rest of the program.
    """

    def __init__(self, process: Process) -> None:
        self.process = process

    def __repr__(self) -> str:
        return f"<probing.AsyncProcess {self.process.label}>"

    async def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """Run one read-only SQL statement; its rows are here when it is back."""

        def ask() -> Answer:
            answer = self.process.query(sql, timeout_s=timeout_s, max_rows=max_rows)
            answer.to_arrow()
            return answer

        return await asyncio.to_thread(ask)

    async def eval_steps(
        self,
        code: str,
        *,
        every: int = 1,
        times: int = 1,
        timeout_s: float | None = None,
        thread: str | None = None,
        frame: int | None = None,
        assign: bool = False,
    ) -> AsyncIterator[EvalResult]:
        """As `Process.eval_steps`: gives results as they come."""
        results = self.process.eval_steps(
            code, every=every, times=times, timeout_s=timeout_s, thread=thread, frame=frame,
            assign=assign,
        )  # fmt: skip
        try:
            while (result := await asyncio.to_thread(next, results, None)) is not None:
                yield result
        finally:
            if isinstance(results, Generator):
                with contextlib.suppress(ValueError):  # a thread still waits for the next one
                    results.close()

    steps = _twin(Process.steps)
    eval = _twin(Process.eval)
    backtrace = _twin(Process.backtrace)
    act = _twin(Process.act)
    acts = _twin(Process.acts)
    profile = _twin(Process.profile)
    sample = _twin(Process.sample)
    arm = _twin(Process.arm)
    armed = _twin(Process.armed)
    snapshot = _twin(Process.snapshot)
    live = _twin(Process.live)
    tables = _twin(Process.tables)
    labels = _twin(Process.labels)
    fit = _twin(Process.fit)
    status = _twin(Process.status)
    settings = _twin(Process.settings)
    set = _twin(Process.set)
    attach = _twin(Process.attach)
    detach = _twin(Process.detach)
    jobs = _twin(Process.jobs)
    cancel = _twin(Process.cancel)
    memory = _twin(Process.memory)
    summary = _twin(Process.summary)
    dataloaders = _twin(Process.dataloaders)
    leak = _twin(Process.leak)
    gradients = _twin(Process.gradients)
    oom = _twin(Process.oom)
    hang = _twin(Process.hang)
    stragglers = _twin(Process.stragglers)
    diff = _twin(Process.diff)
    doctor = _twin(Process.doctor)

    def notes(self) -> list[str]:
        """Sentences about how the answers came about; each is told once."""
        return self.process.notes()


class AsyncJob:
    """A job that can be asked from coroutines; its methods are those of `Job`.

    Attributes:
        job: The same job for the rest of the program.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def __repr__(self) -> str:
        return f"<probing.AsyncJob {self.job.asked}: {len(self.job.membership.members)} processes>"

    async def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> UnionAnswer:
        """Run one read-only SQL statement over all ranks; its rows are here when it is back."""

        def ask() -> UnionAnswer:
            answer = self.job.query(sql, timeout_s=timeout_s, max_rows=max_rows)
            answer.to_arrow()
            return answer

        return await asyncio.to_thread(ask)

    async def hang(self, *, timeout_s: float | None = None) -> tuple[Verdict, ...]:
        """As `Job.hang`."""
        return await asyncio.to_thread(self.job.hang, timeout_s=timeout_s)

    async def stragglers(
        self, steps: int = 20, *, timeout_s: float | None = None
    ) -> StragglerReport:
        """As `Job.stragglers`."""
        return await asyncio.to_thread(self.job.stragglers, steps, timeout_s=timeout_s)

    async def doctor(self, *, within_s: float = 20.0, thorough: bool = True) -> Report:
        """As `Job.doctor`."""
        return await asyncio.to_thread(self.job.doctor, within_s=within_s, thorough=thorough)


async def connect_many_async(
    endpoints: str | int | Sequence[str | int],
    *,
    token: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> AsyncJob:
    """As `probing.connect_many`, for coroutines.

    Raises:
        ProbingError: Nothing at all was found.
    """
    from .ranks import connect_many

    return AsyncJob(
        await asyncio.to_thread(connect_many, endpoints, token=token, timeout_s=timeout_s)
    )


async def connect_async(
    endpoint: str | int,
    *,
    token: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    tls_ca: str | None = None,
    tls_fingerprint: str | None = None,
) -> AsyncProcess:
    """As `probing.connect`, for coroutines.

    Raises:
        ProbingError: The endpoint names no process, or several.
    """
    return AsyncProcess(
        await asyncio.to_thread(
            connect,
            endpoint,
            token=token,
            timeout_s=timeout_s,
            tls_ca=tls_ca,
            tls_fingerprint=tls_fingerprint,
        )
    )
