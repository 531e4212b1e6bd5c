"""What the page asks of one process, and how it is answered.

Rules of this file: runs on the event loop of the server; what waits does so in a thread. SQL over a
record of this machine runs in a worker process, which is killed when the page goes away or the
statement takes too long; a process behind an address is asked by its own server. Nothing here
reaches a process in a way that the commands have not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import io
import json
import os
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from aiohttp import web

from ..api.process import Process
from ..cli.questions.library import all_questions
from ..cli.questions.records import put_in
from ..cli.render.rows import parquet_chunks
from ..cli.render.text import json_value
from ..cluster.node.workers import Workers
from ..errors import BadRequest, ProcessEnded
from ..linux import limited_memory
from ..linux.limited_memory import give_back_memory
from ..messages import common as wire
from ..messages.about.act import asked_of
from ..ring.peek import own_tables
from ..rundir.folders import from_env
from ..server.bodies import json_answer, read_body, send_arrow
from ..server.sql_worker.single_answers import SingleAnswers
from ..settings import Settings
from ..tables import TABLES
from .processes import Processes
from .reports import (
    about_of,
    doctor_of,
    doctor_of_job,
    findings_of,
    fit_of,
    gradients_of,
    holders_of,
    merged_stacks,
    run_report_of,
)
from .routes import PageAct, PageEval, PageQuery, PageQuestion

T = TypeVar("T")

_THREADS = 16
_FINDINGS_AT_ONCE = 1
"""Each holds the rows that it is about in this process: for a grid of ranks they come in turn."""
_TRIM_AFTER_S = 0.5
_BATCH_ROWS = 1 << 16
_FILE_TYPE = "application/octet-stream"
"""Not as what it is: the browser is to save it, and never to show it under this origin."""
_PARQUET_TYPE = "application/vnd.apache.parquet"


class Asking:
    """The routes with data."""

    def __init__(self, processes: Processes, settings: Callable[[], Settings]) -> None:
        self._processes = processes
        self._settings = settings
        self._workers = Workers(settings)
        self._unions = SingleAnswers("probing.web.union_worker", _environment())
        self._trimming: asyncio.Task[None] | None = None
        self._room = asyncio.Semaphore(_FINDINGS_AT_ONCE)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="page")

    def close(self) -> None:
        """End what runs for the page."""
        if self._trimming is not None:
            self._trimming.cancel()
        self._workers.close()
        self._unions.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def processes(self, request: web.Request) -> web.StreamResponse:
        """The processes there are."""
        seen = await self._in_thread(self._processes.seen)
        return _plain_answer({**seen, "may_eval": self._settings().allow_eval})

    async def catalog(self, request: web.Request) -> web.StreamResponse:
        """Tables and saved questions."""
        tables = await self._in_thread(_tables)
        return _plain_answer({"tables": tables, "questions": _questions()})

    async def query(self, request: web.Request) -> web.StreamResponse:
        """The answer to a statement."""
        asked = await read_body(request, PageQuery)
        process = await self._in_thread(self._processes.process, asked.endpoint)
        pieces = self._of_job(asked) if asked.of_job else self._pieces(process, asked)
        if asked.format == "arrow":
            return await send_arrow(request, pieces)
        if asked.format != "parquet":
            raise BadRequest(f"there is no format {asked.format!r}: arrow or parquet")
        stream = b"".join([piece async for piece in pieces])
        body = await self._in_thread(_as_parquet, stream)
        return web.Response(body=body, content_type=_PARQUET_TYPE)

    async def about(self, request: web.Request) -> web.StreamResponse:
        """What it is, and how it has ended or where it does not get on."""
        return await self._report(request, about_of)

    async def findings(self, request: web.Request) -> web.StreamResponse:
        """What its record shows to be wrong."""
        async with self._room:
            return await self._report(request, findings_of)

    async def doctor(self, request: web.Request) -> web.StreamResponse:
        """What is wrong with it, or with its job, by all rules."""
        asked = await read_body(request, PageQuestion)
        if not asked.of_job:
            return await self._report(request, doctor_of)
        members, target = self._processes.job_of(asked.endpoint), self._processes.target
        return _plain_answer(await self._looked(doctor_of_job, members, target))

    async def gradients(self, request: web.Request) -> web.StreamResponse:
        """Have its next step's gradients recorded."""
        return await self._report(request, gradients_of)

    async def holders(self, request: web.Request) -> web.StreamResponse:
        """Who refers to its largest tensors."""
        return await self._report(request, holders_of)

    async def fit(self, request: web.Request) -> web.StreamResponse:
        """The largest batch that fits."""
        return await self._report(request, fit_of)

    async def report(self, request: web.Request) -> web.StreamResponse:
        """The run in one file."""
        asked = await read_body(request, PageQuestion)
        process = await self._in_thread(self._processes.process, asked.endpoint)
        text = await self._looked(run_report_of, process)
        return web.Response(body=text.encode(), content_type=_FILE_TYPE)

    async def stacks(self, request: web.Request) -> web.StreamResponse:
        """Where its threads are; of one that has ended in order, that it has none."""
        asked = await read_body(request, PageQuestion)
        process = await self._in_thread(self._processes.process, asked.endpoint)
        try:
            return json_answer(await self._looked(process.backtrace))
        except ProcessEnded as error:
            return _plain_answer({"none": error.message, "help": error.help})

    async def merged(self, request: web.Request) -> web.StreamResponse:
        """Where the threads of all ranks of its job are."""
        asked = await read_body(request, PageQuestion)
        members, target = self._processes.job_of(asked.endpoint), self._processes.target
        return _plain_answer(
            await self._looked(merged_stacks, members, target.timeout_s, target.token)
        )

    async def _report(
        self, request: web.Request, report: Callable[[Process], dict[str, Any]]
    ) -> web.StreamResponse:
        """What a command says of a process."""
        asked = await read_body(request, PageQuestion)
        process = await self._in_thread(self._processes.process, asked.endpoint)
        return _plain_answer(await self._looked(report, process))

    async def eval(self, request: web.Request) -> web.StreamResponse:
        """Run code in it."""
        asked = await read_body(request, PageEval)
        process = await self._in_thread(self._processes.process, asked.endpoint)
        return json_answer(await self._in_thread(process.eval, asked.code))

    async def act(self, request: web.Request) -> web.StreamResponse:
        """Change something in its training."""
        body = await read_body(request, PageAct)
        asked = [one for _, one in asked_of(body.asked)]
        if len(asked) != 1:
            raise BadRequest("one action is applied at a time")
        process = await self._in_thread(self._processes.process, body.endpoint)
        return json_answer(await self._in_thread(process.act, asked[0]))

    async def _pieces(self, process: Process, asked: PageQuery) -> AsyncGenerator[bytes, None]:
        """An Arrow stream in pieces."""
        if process.folder is None:
            question = functools.partial(
                process.query, asked.sql, timeout_s=asked.timeout_s, max_rows=asked.max_rows
            )
            for piece in await self._in_thread(_streamed, question):
                yield piece
            return
        request = wire.QueryRequest(
            sql=asked.sql, timeout_s=asked.timeout_s, max_rows=asked.max_rows
        )
        pieces = self._workers.query(request, process.folder)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    async def _of_job(self, asked: PageQuery) -> AsyncGenerator[bytes, None]:
        """An Arrow stream of the rows of all ranks."""
        settings, token = self._settings(), self._processes.target.token
        limit_s = min(asked.timeout_s or settings.query_timeout_s, settings.query_timeout_s)
        most = settings.query_max_rows
        question = {
            "members": [dataclasses.asdict(one) for one in self._processes.job_of(asked.endpoint)],
            "sql": asked.sql, "token": token, "timeout_s": limit_s,
            "max_rows": most if asked.max_rows is None else max(0, min(asked.max_rows, most)),
            "memory_mib": settings.query_memory_mib,
        }  # fmt: skip
        yield await self._unions.answer(json.dumps(question).encode(), limit_s)

    async def _looked(self, work: Callable[..., T], *arguments: object) -> T:
        """Do what reads records in this process, and give back the memory that it took."""
        try:
            return await self._in_thread(work, *arguments)
        finally:
            if self._trimming is None or self._trimming.done():
                self._trimming = asyncio.create_task(self._give_back_soon())

    async def _give_back_soon(self) -> None:
        """Give back what was left behind, once for all that is asked within a moment."""
        await asyncio.sleep(_TRIM_AFTER_S)
        await self._in_thread(gc.collect)
        await self._in_thread(give_back_memory)

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Do what waits."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(work, *arguments))


def _environment() -> dict[str, str]:
    """What a statement over a job sees: no token but the one that it is given."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_TOKEN")}
    return {**kept, **limited_memory.ENVIRONMENT, "PROBING": "0"}


def _plain_answer(value: Any) -> web.Response:
    """JSON as browsers read it, which know of no number that is not finite."""
    body = json.dumps(json_value(value), allow_nan=False, default=str).encode()
    return web.Response(body=body, content_type=wire.JSON_TYPE)


def _tables() -> list[dict[str, Any]]:
    """Every table, those of the scripts on this machine among them, for completion."""
    found = {table.name: table for table in TABLES}
    for folder in from_env().folders():
        for table in own_tables(folder):
            found.setdefault(table.name, table)
    return [
        {
            "name": f"{table.schema}.{table.name}",
            "doc": table.doc,
            "columns": [{"name": one.name, "doc": one.doc} for one in table.columns],
        }
        for table in found.values()
    ]


def _questions() -> list[dict[str, str]]:
    """The saved questions, with their parameters put in."""
    return [
        {"name": one.name, "doc": one.doc, "sql": put_in(one.sql, {}, one.parameters).strip()}
        for one in all_questions()
    ]


def _streamed(question: Callable[[], Any]) -> list[bytes]:
    """What a process behind an address answers, as the pieces of an Arrow stream."""
    import pyarrow as pa

    with question() as answer:
        table = answer.to_arrow()
        schema = table.schema
        if answer.truncated:
            cut = {wire.TRUNCATED_KEY: answer.truncated.encode()}
            schema = schema.with_metadata({**(schema.metadata or {}), **cut})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return [sink.getvalue()]


def _as_parquet(stream: bytes) -> bytes:
    """An Arrow stream as a Parquet file.

    Raises:
        UsageError: It has a column that Parquet cannot hold.
    """
    import pyarrow as pa

    table = pa.ipc.open_stream(stream).read_all().combine_chunks()
    return b"".join(parquet_chunks(table.schema, table.to_batches()))
