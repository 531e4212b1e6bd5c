"""What each route does.

Rules of this file: one method per route of `probing.messages.routes`, by the route's name; runs on
the agent's event loop. Nothing here waits for the training: what may take long runs in a thread or
process of its own, and a client that goes away takes its work with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from .._version import VERSION
from ..errors import InternalError
from ..messages import common as wire
from ..messages.about import (
    act as act_wire,
    allocation as allocation_wire,
    eval as eval_wire,
    labels as labels_wire,
)
from ..messages.about.fit import FitRequest
from ..messages.openapi import openapi
from ..ring.peek import tables_answer
from ..safety.guard import try_each
from ..server.bodies import json_answer, read_body, send_arrow, send_file
from ..server.parameters import flag, seconds
from ..server.sql_worker.worker import SqlWorker
from ..settings import SETTINGS
from .actions.actions import Actions
from .actions.pending import PendingAction
from .eval.evaluation import GRACE_S
from .eval.evaluator import Evaluator
from .eval.run import IDLE_S, LAST_S
from .eval.stream import sender_of, stream_results
from .live.encode import encode_live
from .live.live import TAKES_A_WHILE, live_rows, rows_in_thread
from .live.question import LiveQuestion
from .on_demand.arming import Arming
from .on_demand.memory_recording import MemoryRecordings
from .on_demand.profiling import Profiles
from .sources.stacks.look import take_backtrace
from .state import Agent

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .on_demand.fitting import Fits
    from .sources.data.labels import LabelReading

T = TypeVar("T")


class Handlers:
    """The routes of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._worker = SqlWorker(agent.folder, lambda: agent.settings)
        self._profiles = Profiles(lambda: agent.training, agent.folder)
        self._memory = MemoryRecordings(self._profiles, lambda: agent.training, agent.folder)
        self._arming = Arming(lambda: agent.training)
        self._evaluator = Evaluator(agent)
        self._actions = Actions(agent)
        self._readings: set[LabelReading] = set()
        self._fits: Fits | None = None

    def close(self) -> None:
        """End what runs for clients: evals, profiles, labels, what is armed, the SQL worker."""
        try_each(
            (
                *(reading.end for reading in list(self._readings)),
                *([self._fits.close] if self._fits is not None else []),
                self._evaluator.close,
                self._actions.close,
                self._arming.close,
                self._profiles.close,
                self._memory.close,
                self._worker.close,
            )
        )

    async def ping(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        self._agent.refresh_card()
        return json_answer(wire.Pong(pid=self._agent.folder.pid))

    async def status(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(self._agent.card())

    async def query(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = await read_body(request, wire.QueryRequest)
        return await send_arrow(request, self._worker.query(question))

    async def eval(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = await read_body(request, wire.EvalRequest)
        evaluation = self._evaluator.submit(question, sender_of(request))
        result = asyncio.wrap_future(evaluation.future)
        if question.session is not None:
            result.add_done_callback(self._forget_unused_later)  # also where nobody awaits it
        try:
            done, _ = await asyncio.wait([result], timeout=evaluation.limit_s + GRACE_S)
        except asyncio.CancelledError:  # the client went away
            evaluation.cancel("given up by the client")
            asyncio.get_running_loop().call_later(GRACE_S, evaluation.leave_behind)
            raise
        if not done:
            raise evaluation.overdue()
        return json_answer(result.result())

    def _forget_unused_later(self, _: asyncio.Future[wire.EvalResult]) -> None:
        """A line of a prompt has ended, however late: look whether another one comes."""
        for wait_s in (LAST_S, IDLE_S):
            asyncio.get_running_loop().call_later(wait_s, self._evaluator.forget_unused)

    async def end_session(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = await read_body(request, eval_wire.SessionRequest)
        self._evaluator.end_session(question.session)
        return json_answer(question)

    async def eval_commit(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        commit = await read_body(request, eval_wire.EvalCommit)
        self._evaluator.commit(commit)
        return json_answer(commit)

    async def repeat(self, request: web.Request) -> web.StreamResponse:
        """See the route. A client that goes away ends it."""
        question = await read_body(request, eval_wire.RepeatRequest)
        return await stream_results(request, self._evaluator, question)

    async def jobs(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(self._evaluator.jobs())

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = await read_body(request, eval_wire.CancelRequest)
        with self._changing(request, "cancel", f"eval {question.number}"):
            self._evaluator.cancel(question.number, sender_of(request))
        return json_answer(self._evaluator.jobs())

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """See the route. Looks at frames and attributes, and runs nothing."""
        from .eval.completion import complete

        question = await read_body(request, eval_wire.CompleteRequest)
        last = self._evaluator.last_value(question.session)
        return json_answer(complete(question.text, self._agent.training, last))

    async def act(self, request: web.Request) -> web.StreamResponse:
        """See the route. What has begun ends, even when the client goes away."""
        question = await read_body(request, act_wire.ActRequest)
        kept = self._actions.submit(question, sender_of(request))
        return json_answer(await _awaited(kept, kept.future))

    async def act_prepare(self, request: web.Request) -> web.StreamResponse:
        """See the route. Who goes away without an answer has given it up."""
        question = await read_body(request, act_wire.ActRequest)
        kept = self._actions.submit(question, sender_of(request))
        return json_answer(await _awaited(kept, kept.prepared))

    async def act_commit(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        commit = await read_body(request, act_wire.Commit)
        self._actions.commit(commit)
        return json_answer(commit)

    async def acts(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(self._actions.told())

    async def profile(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = await read_body(request, wire.ProfileRequest)
        with self._changing(request, "profile", _told(question)):
            profiling = self._profiles.submit(question)
            path = await _answer_of(profiling.future, profiling.cancel)
        return await send_file(request, path)

    async def profile_progress(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(self._profiles.progress())

    async def record(self, request: web.Request) -> web.StreamResponse:
        """See the route. What ends a recording may write a large file."""
        question = await read_body(request, allocation_wire.RecordRequest)
        with self._changing(request, "record", _told(question)):
            return json_answer(await asyncio.wrap_future(self._memory.change(question)))

    async def recording(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(self._memory.status())

    async def snapshot(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = await read_body(request, allocation_wire.SnapshotRequest)
        with self._changing(request, "snapshot", _told(question)):
            path = await _answer_of(*self._memory.snapshot(question))
        return await send_file(request, path)

    async def arm(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = await read_body(request, wire.ArmRequest)
        with self._changing(request, "arm", _told(question)):
            self._arming.arm(question)
        return json_answer(self._arming.armed())

    async def armed(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(self._arming.armed())

    async def backtrace(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        trace = take_backtrace(locals=flag(request, "locals"))
        loaders = self._agent.training.dataloaders
        if loaders is not None:
            from .sources.data.dataloader_rows import with_workers_named

            trace = with_workers_named(trace, loaders)
        return json_answer(trace)

    async def labels(self, request: web.Request) -> web.StreamResponse:
        """See the route. A client that goes away ends the waiting."""
        from .sources.data.labels import LabelReading

        question = await read_body(request, labels_wire.LabelsRequest)
        reading = LabelReading(question, self._agent.training)
        self._readings.add(reading)
        try:
            return json_answer(await asyncio.wrap_future(reading.begin()))
        finally:
            reading.end()
            self._readings.discard(reading)

    async def fit(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        from .on_demand.fitting import Fits

        question = await read_body(request, FitRequest)
        self._fits = self._fits or Fits(lambda: self._agent.training)
        with self._changing(request, "fit", _told(question)):
            fitting = self._fits.submit(question)
            return json_answer(await _answer_of(fitting.future, fitting.cancel))

    async def tables(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(tables_answer(self._agent.folder))

    async def live(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        question = LiveQuestion(
            table=request.match_info["table"],
            training=self._agent.training,
            wait_s=seconds(request, "wait_s"),
            patient=flag(request, "patient"),
            only_random=flag(request, "only_random"),
            own=self._agent.extensions(),
        )
        if question.wait_s is None and question.table not in TAKES_A_WHILE and question.is_ours:
            return self._told_rows(live_rows(question))
        return self._told_rows(await _answer_of(rows_in_thread(question), question.cancelled.set))

    def _told_rows(self, live: wire.LiveRows) -> web.Response:
        """The answer that holds the rows of a live table."""
        body = encode_live(live, self._agent.settings)
        return web.Response(body=body, content_type=wire.JSON_TYPE)

    async def settings(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return json_answer(_settings(self._agent))

    async def set(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        change = await read_body(request, wire.SettingChange)
        with self._changing(request, "set", _told_setting(change)):
            self._agent.change(change.name, change.value)
        try_each((self._agent.refresh_card,))
        return json_answer(_settings(self._agent))

    async def detach(self, request: web.Request) -> web.StreamResponse:
        """See the route. The answer is on its way before anything stops."""
        question = await read_body(request, wire.DetachRequest)
        if self._agent.depart is None:
            raise InternalError("this agent cannot leave")
        with self._changing(request, "detach", _told(question)):
            leaving = self._agent.depart(question.keep_record)
        pid = self._agent.folder.pid
        response = json_answer(wire.Detached(pid=pid, kept=leaving.kept, left=leaving.left))
        response.force_close()
        try:
            await response.prepare(request)
            await response.write_eof()
        finally:  # also when the client is gone already
            leaving.begin()
        return response

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        """See the route."""
        return web.json_response(openapi(VERSION))

    def _changing(
        self, request: web.Request, name: str, arguments: str
    ) -> AbstractContextManager[None]:
        """What is done inside is more than to read: audited, and on record."""
        return self._agent.changes().change(sender_of(request), name, arguments)


def _told(question: Any) -> str:
    """What a request asks for: its fields that are not as they are by default."""
    given = (
        (field.name, getattr(question, field.name))
        for field in dataclasses.fields(question)
        if getattr(question, field.name) != field.default
    )
    return ", ".join(f"{name}={value!r}" for name, value in given)


def _told_setting(change: wire.SettingChange) -> str:
    """A setting that is to be changed; a secret's value is not told."""
    secret = any(s.secret and change.name in (s.name, s.env) for s in SETTINGS)
    return f"{change.name}={'...' if secret else change.value}"


def _settings(agent: Agent) -> wire.SettingsAnswer:
    """Every setting with its value and where it comes from; a secret one is only named."""
    shown = []
    for setting in SETTINGS:
        value = getattr(agent.settings, setting.name)
        shown.append(
            wire.SettingValue(
                name=setting.name,
                env=setting.env,
                value=("set" if value else "not set") if setting.secret else str(value),
                source=agent.source_of(setting),
                live=setting.live,
                doc=setting.doc,
            )
        )
    return wire.SettingsAnswer(settings=tuple(shown), unknown=agent.unknown)


async def _answer_of(future: Future[T], cancel: Callable[[], None]) -> T:
    """What comes of a job, which is cancelled where the client goes away before."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        cancel()
        raise


async def _awaited(kept: PendingAction, future: Future[T]) -> T:
    """What comes of an action; who goes away before it comes has given the action up."""
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        kept.is_cancelled = True
        raise
