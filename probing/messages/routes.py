"""The HTTP routes, each declared once.

Rules of this file: method, path, bodies and meaning of a route live here; the agent's server
binds a handler to each by name, the client asks by name, and the OpenAPI description (see
`openapi`) and the reference page are made from these records. A GET changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

from . import common as wire, rank_paths
from .about import (
    act as act_wire,
    allocation as allocation_wire,
    eval as eval_wire,
    job as job_wire,
    labels as labels_wire,
    union as union_wire,
)
from .frozen import dataclass

Access = Literal["read", "change", "eval"]
"""What a route does: answers from what is recorded and what can be looked at; changes, holds or
slows the training, or interrupts what others have begun; runs code that was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A query parameter that is ``true`` or ``false``; left out, it is the latter."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """A query parameter that is a time; left out, there is none."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route.

    Attributes:
        name: What code calls it.
        request: The class of the JSON body, or None where there is no body.
        flags: Its query parameters that are true or false.
        times: Its query parameters that are times.
        answer: The class of the JSON answer; ``arrow`` for an Arrow IPC stream, ``document``
            for the description of the routes itself; ``results`` for lines of JSON, each an
            `EvalResult` or an error body, as they come; ``trace`` for a gzipped Chrome trace;
            ``allocations`` for the gzipped lines of a recording of allocations; ``metrics`` for
            figures in the OpenMetrics format.
        access: What one must be allowed to do; over TCP a token or a setting decides.
        writes: Whether a body has a file written where its sender says, which over TCP needs what
            "eval" needs; None where none has.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    doc: str
    request: type[Any] | None = None
    flags: tuple[Flag, ...] = ()
    times: tuple[Seconds, ...] = ()
    answer: type[Any] | Literal["arrow", "document", "trace", "allocations", "results", "metrics"]
    access: Access
    writes: Callable[[bytes], bool] | None = None


_get = functools.partial(Route, method="GET", access="read")
_post = functools.partial(Route, method="POST")

ROUTES: tuple[Route, ...] = (
    _get(
        name="ping",
        path="/v1/ping",
        answer=wire.Pong,
        doc="Whether the process can run Python code. Answered before anything else is loaded.",
    ),
    _get(name="status", path="/v1/status", answer=wire.Card, doc="Who it is."),
    _post(
        name="query",
        path="/v1/query",
        access="read",
        request=wire.QueryRequest,
        answer="arrow",
        doc="Run one read-only SQL statement. An answer that was cut says so in"
        " `probing.truncated` of its schema's metadata.",
    ),
    _post(
        name="eval",
        path="/v1/eval",
        access="eval",
        request=wire.EvalRequest,
        answer=wire.EvalResult,
        doc="Run Python code in the process, at the next safe point while training makes progress.",
    ),
    _post(
        name="eval_commit",
        path="/v1/eval/commit",
        access="eval",
        request=eval_wire.EvalCommit,
        answer=eval_wire.EvalCommit,
        doc="Say at which step the ranks of a job run code, that all are held there so that it"
        " begins, or that it is run alone.",
    ),
    _get(
        name="backtrace",
        path="/v1/backtrace",
        answer=wire.Backtrace,
        flags=(Flag(name="locals", doc="Also short texts of the local variables."),),
        doc="The stack of every thread; with `?locals=true` texts of local variables.",
    ),
    _post(
        name="labels",
        path="/v1/labels",
        access="change",
        request=labels_wire.LabelsRequest,
        answer=labels_wire.LabelsAnswer,
        doc="Tokens beside labels of the next batch that the training reads.",
    ),
    _post(
        name="profile",
        path="/v1/profile",
        access="change",
        request=wire.ProfileRequest,
        answer="trace",
        doc="Run torch.profiler over the next steps. Closing the connection ends it at the"
        " end of the step in progress.",
    ),
    _get(
        name="profile_progress",
        path="/v1/profile",
        answer=wire.ProfileProgress,
        doc="How far the profile under way is.",
    ),
    _post(
        name="arm",
        path="/v1/arm",
        access="change",
        request=wire.ArmRequest,
        answer=wire.ArmedAnswer,
        doc="Record something in the next steps, or end that. The answer comes at once.",
    ),
    _get(
        name="armed",
        path="/v1/arm",
        answer=wire.ArmedAnswer,
        doc="What is recorded on demand, and how far it is.",
    ),
    _get(
        name="tables",
        path="/v1/tables",
        answer=wire.TablesAnswer,
        doc="How many rows each table holds and has lost.",
    ),
    _get(
        name="live",
        path="/v1/live/{table}",
        answer=wire.LiveRows,
        flags=(
            Flag(name="patient", doc="Wait even while the training makes no progress at all."),
            Flag(
                name="only_random",
                doc="Of `parameter_checksums` only the states of random generators: no parameter is"
                " read, and the training stands still for a moment only.",
            ),
        ),
        times=(
            Seconds(
                name="wait_s",
                doc="How long the next call of the model may be waited for, in seconds. Only"
                " `modules` does, for the columns from `calls` on; without it they are not observed"
                " anew.",
            ),
        ),
        doc="The rows of one live table. `parameter_checksums@120` are those at the end of step"
        " 120.",
    ),
    _get(
        name="settings",
        path="/v1/settings",
        answer=wire.SettingsAnswer,
        doc="The settings in force.",
    ),
    _post(
        name="set",
        path="/v1/settings",
        access="change",
        request=wire.SettingChange,
        answer=wire.SettingsAnswer,
        doc="Change one setting of the running process.",
    ),
    _post(
        name="detach",
        path="/v1/detach",
        access="change",
        request=wire.DetachRequest,
        answer=wire.Detached,
        doc="Take the agent out of the process, after the answer.",
    ),
    _post(
        name="record",
        path="/v1/memory/record",
        access="change",
        request=allocation_wire.RecordRequest,
        answer=allocation_wire.RecordStatus,
        doc="Begin or end to record allocations. The answer comes at once.",
    ),
    _get(
        name="recording",
        path="/v1/memory/record",
        answer=allocation_wire.RecordStatus,
        doc="How the recording of allocations stands.",
    ),
    _post(
        name="snapshot",
        path="/v1/memory/snapshot",
        access="change",
        request=allocation_wire.SnapshotRequest,
        answer="allocations",
        doc="The recorded allocations, else those of the next steps. Closing the connection"
        " ends what was begun for it.",
    ),
    _post(
        name="fit",
        path="/v1/fit",
        access="change",
        request=wire.FitRequest,
        answer=wire.FitAnswer,
        doc="Predict the peak memory of a step in another shape, on a copy of the model"
        " without data, with the training held.",
    ),
    _post(
        name="repeat",
        path="/v1/eval/repeat",
        access="eval",
        request=eval_wire.RepeatRequest,
        answer="results",
        doc="Run Python code at the end of every so many steps, a line for each run; closing"
        " the connection ends it.",
    ),
    _get(
        name="jobs",
        path="/v1/jobs",
        answer=eval_wire.EvalJobs,
        doc="The pending and running evals.",
    ),
    _post(
        name="cancel",
        path="/v1/jobs/cancel",
        access="change",
        request=eval_wire.CancelRequest,
        answer=eval_wire.EvalJobs,
        doc="Interrupt an eval, or do not run it; answers what is left.",
    ),
    _post(
        name="end_session",
        path="/v1/eval/end",
        access="eval",
        request=eval_wire.SessionRequest,
        answer=eval_wire.SessionRequest,
        doc="Forget the last value of a prompt, and what its lines have assigned.",
    ),
    _post(
        name="complete",
        path="/v1/complete",
        access="eval",
        request=eval_wire.CompleteRequest,
        answer=eval_wire.Completions,
        doc="How a line of Python that is being typed can go on. Runs no code of the objects.",
    ),
    _post(
        name="act",
        path="/v1/act",
        access="change",
        request=act_wire.ActRequest,
        writes=act_wire.writes_file,
        answer=act_wire.Act,
        doc="Change something in the training, between two steps; exactly one action,"
        " answered when applied. Over TCP a `checkpoint` needs what an eval needs.",
    ),
    _post(
        name="act_prepare",
        path="/v1/act/prepare",
        access="change",
        request=act_wire.ActRequest,
        writes=act_wire.writes_file,
        answer=act_wire.Prepared,
        doc="Prepare an action that several ranks apply at one step. The answer comes when"
        " this rank could; `commit` says where.",
    ),
    _post(
        name="act_commit",
        path="/v1/act/commit",
        access="change",
        request=act_wire.Commit,
        answer=act_wire.Commit,
        doc="Say where a prepared action is applied, or give it up; refused where it is too late.",
    ),
    _get(
        name="acts",
        path="/v1/act",
        answer=act_wire.Acts,
        doc="The last actions, and how they stand.",
    ),
    _get(
        name="openapi",
        path="/v1/openapi.json",
        answer="document",
        doc="This description, as OpenAPI 3.1.",
    ),
)

NODE_ROUTES: tuple[Route, ...] = (
    _get(
        name="members",
        path="/v1/members",
        answer=job_wire.MembersAnswer,
        flags=(Flag(name="states", doc="Also what each of them does; asks them all for a sign."),),
        doc="Only of a node server: every process of its machine, alive or ended. The routes"
        " of each are at `/v1/ranks/{key}/...`, as `/v1/ranks/4242-81234567/query`.",
    ),
    _post(
        name="union",
        path="/v1/union",
        access="read",
        request=union_wire.UnionRequest,
        answer="arrow",
        doc="Only of a node server: one SQL statement over one table of several processes,"
        " with `rank`, `host` and `pid` first. `probing.members` of the schema's metadata"
        " tells what became of each.",
    ),
    _get(
        name="metrics",
        path="/metrics",
        answer="metrics",
        doc="Only of a node server: figures of every process of its machine for Prometheus, from"
        " their records.",
    ),
)
"""What a node server answers for itself."""

RANK_ROUTES: tuple[Route, ...] = tuple(
    [
        dataclasses.replace(route, path=rank_paths.path_of("{key}", route.path))
        for route in ROUTES
        if route.name != "openapi"
    ]
)
"""What it answers for each of its processes, or passes on to the agent there."""

ROUTES_BY_NAME: dict[str, Route] = {route.name: route for route in (*ROUTES, *NODE_ROUTES)}
