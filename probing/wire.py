"""What travels between a client, the agent and the SQL worker: objects to bytes and back.

Rules of this file: no socket, no clock, no thread. Every body is JSON, described by a frozen
dataclass; `encode` and `decode` are each other's mirror, and any bytes at all give an object
or a `BadRequest`. Rows of answers travel as an Arrow IPC stream, which is not made here.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import BadRequest, ProbingError, RemoteError

T = TypeVar("T")

ARROW_TYPE = "application/vnd.apache.arrow.stream"
JSON_TYPE = "application/json"
EVAL_INTERRUPTED = "EvalInterrupted"
"""The `error_type` of code that was ended by its time limit."""
TRUNCATED_KEY = b"probing.truncated"
"""Schema metadata of an Arrow answer: why it was cut, absent when it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of a stack.

    Attributes:
        func: Qualified name of the function.
        file: Source file.
        lineno: The line being executed; 0 where unknown.
        line: The text of that line, where the source could be read.
        kind: ``python`` or ``native``.
    """

    func: str
    file: str
    lineno: int
    line: str | None = None
    kind: str = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread and its frames, innermost first.

    Attributes:
        thread_id: The thread's number in the kernel; 0 where unknown.
        state: The kernel's letter for its state.
        cpu_s: Processor time used, in seconds; None where unknown.
        holds_gil: Whether it holds the interpreter lock; None where unknown.
    """

    thread_id: int
    name: str
    is_main: bool
    frames: tuple[Frame, ...]
    daemon: bool | None = None
    alive: bool = True
    state: str | None = None
    cpu_s: float | None = None
    holds_gil: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtrace:
    """The stacks of a process at one moment, main thread first.

    Attributes:
        source: ``agent`` or ``py-spy``.
        note: What the reader should know about how it was taken, if anything.
    """

    pid: int
    source: str
    threads: tuple[ThreadStack, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """One SQL statement.

    Attributes:
        timeout_s: The client's time limit; the agent's own applies when it is shorter.
        max_rows: The most rows the client wants; the agent's own limit applies when smaller.
    """

    sql: str
    timeout_s: float | None = None
    max_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """Python code to run in the process.

    Attributes:
        now: Do not wait for a safe point of the training.
    """

    code: str
    timeout_s: float | None = None
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """What came of an eval.

    Attributes:
        output: What the code printed.
        value: The representation of the last expression, unless it is None.
        error: The traceback of the exception that ended it, if one did.
        error_type: The class name of that exception.
        omitted_bytes: Bytes printed beyond the limit, which were not kept.
        duration_s: How long the code ran.
        waited_s: How long it waited for a safe point.
        where: ``safe point`` when training was held meanwhile, else ``agent thread``.
        step: The training step at that moment, if one is counted.
    """

    output: str
    value: str | None
    error: str | None
    error_type: str | None
    omitted_bytes: int
    duration_s: float
    waited_s: float
    where: str
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """A setting as it is in force; the value of a secret one is not told."""

    name: str
    env: str
    value: str
    source: str
    live: bool
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsAnswer:
    """All settings of a process."""

    settings: tuple[SettingValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One setting to change in the running process."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table as it stands in a process.

    Attributes:
        rows: Rows that can be read now; None for a live table.
        written: Rows written since the start.
        overwritten: Rows that made room for newer ones.
        dropped: Rows that could not be written.
        oldest_ns: When the oldest readable row started, since the epoch.
        problem: Why the table cannot be read, if it cannot.
    """

    name: str
    kind: str
    rows: int | None = None
    written: int | None = None
    overwritten: int | None = None
    dropped: int | None = None
    oldest_ns: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesAnswer:
    """All tables of a process."""

    tables: tuple[TableStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRows:
    """The rows of one live table, column names beside them."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Who a process is; the file ``card.json`` of its run folder and the answer to ``status``.

    Attributes:
        start_time: Clock ticks after boot at which the process started.
        pid_namespace: Inode of the pid namespace that `pid` belongs to.
        listen: ``host:port`` of its TCP listener, if it has one.
        problems: What the agent could not do, one sentence each.
    """

    pid: int
    start_time: int
    boot_id: str
    pid_namespace: int
    uid: int
    host: str
    command: tuple[str, ...]
    executable: str
    python: str
    version: str
    started_ns: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    listen: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """The answer to a ping."""

    pid: int


def encode(value: Any) -> bytes:
    """The JSON of any object of this file."""
    return json.dumps(dataclasses.asdict(value), separators=(",", ":")).encode()


def decode(cls: type[T], data: bytes | str) -> T:
    """The object of class `cls` that `encode` made these bytes from.

    Raises:
        BadRequest: The bytes are no such object.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON ({error})") from None
    value: T = _build(cls, raw, cls.__name__)
    return value


def _build(kind: Any, raw: Any, where: str) -> Any:
    """Check `raw` against a type annotation and build what it describes."""
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        return _build_union(kind, raw, where)
    if origin is tuple:
        if not isinstance(raw, list):
            raise BadRequest(f"{where} must be a list")
        item = typing.get_args(kind)[0]
        return tuple(_build(item, entry, f"{where}[{i}]") for i, entry in enumerate(raw))
    if dataclasses.is_dataclass(kind):
        return _build_object(kind, raw, where)
    if kind is float and type(raw) is int:
        return float(raw)
    if type(raw) is not kind:
        raise BadRequest(f"{where} must be {kind.__name__}")
    return raw


def _build_union(kind: Any, raw: Any, where: str) -> Any:
    """Build the first member of a union that fits."""
    members = typing.get_args(kind)
    if raw is None and types.NoneType in members:
        return None
    exact = [m for m in members if m is type(raw)]
    candidates = exact or [m for m in members if m is not types.NoneType]
    return _build(candidates[0], raw, where)


def _build_object(kind: Any, raw: Any, where: str) -> Any:
    """Build a dataclass from an object, refusing missing and unknown members."""
    if not isinstance(raw, dict):
        raise BadRequest(f"{where} must be an object")
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(raw) - set(hints))
    if unknown:
        raise BadRequest(f"{where} has no member {unknown[0]!r}")
    values = {}
    for spec in dataclasses.fields(kind):
        if spec.name in raw:
            values[spec.name] = _build(hints[spec.name], raw[spec.name], f"{where}.{spec.name}")
        elif spec.default is dataclasses.MISSING:
            raise BadRequest(f"{where} lacks {spec.name!r}")
    return kind(**values)


def encode_error(error: ProbingError) -> bytes:
    """The one error body of every route."""
    body = {
        "code": error.code,
        "status": error.status,
        "exit_code": error.exit_code,
        "message": error.message,
        "help": error.help,
        "detail": error.detail,
    }
    return json.dumps({"error": body}, separators=(",", ":")).encode()


def decode_error(data: bytes) -> RemoteError:
    """The error that a body describes; a body that describes none says so itself."""
    try:
        body = json.loads(data)["error"]
        return RemoteError(
            code=str(body["code"]),
            status=int(body["status"]),
            exit_code=int(body["exit_code"]),
            message=str(body["message"]),
            help=str(body["help"]),
            detail=body["detail"],
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadRequest("the answer is not an error body of probing") from None
