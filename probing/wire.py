"""What travels between a client, the agent and the SQL worker: objects to bytes and back.

Rules of this file: no socket, no clock, no thread. Every body is JSON, described by a frozen
dataclass and made by `probing.codec`. Rows of answers travel as an Arrow IPC stream, which is
not made here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .card import Card as Card  # noqa: PLC0414 - part of the wire, as the next are
from .card import Pong as Pong  # noqa: PLC0414
from .codec import decode as decode  # noqa: PLC0414
from .codec import encode as encode  # noqa: PLC0414
from .errors import BadRequest, ProbingError, RemoteError
from .fit import FitAnswer as FitAnswer  # noqa: PLC0414
from .fit import FitPart as FitPart  # noqa: PLC0414
from .fit import FitPeak as FitPeak  # noqa: PLC0414
from .fit import FitRequest as FitRequest  # noqa: PLC0414
from .fit import FitShape as FitShape  # noqa: PLC0414

ARROW_TYPE = "application/vnd.apache.arrow.stream"
JSON_TYPE = "application/json"
TRACE_TYPE = "application/gzip"
MOST_STEPS = 1000
"""The most steps of one profile."""
ARMABLE = ("nan", "gradients", "leak")
"""What can be recorded on demand."""
EVAL_INTERRUPTED = "EvalInterrupted"
"""The `error_type` of code that was ended by its time limit."""
TRUNCATED_KEY = b"probing.truncated"
"""Schema metadata of an Arrow answer: why it was cut, absent when it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """One local variable and a short text of its value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of a stack.

    Attributes:
        func: Qualified name of the function; of a module that the process died in, its name.
        file: Source file; the library of a native function.
        lineno: The line being executed; 0 where unknown.
        line: The text of that line, where the source could be read.
        kind: ``python``, ``native``, or ``module`` for a torch module whose call had not ended.
        locals: The local variables, if they were asked for.
    """

    func: str
    file: str
    lineno: int
    line: str | None = None
    kind: str = "python"
    locals: tuple[Local, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread and its frames, innermost first.

    Attributes:
        thread_id: The thread's number in the kernel; 0 where unknown.
        state: The kernel's letter for its state.
        cpu_s: Processor time used, in seconds; None where unknown.
        holds_gil: Whether it holds the interpreter lock; None where unknown.
        waiting: What it waits for or does, in words; None where unknown.
        wchan: The function of the kernel that it sleeps in; None where unknown or awake.
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
    waiting: str | None = None
    wchan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtrace:
    """The stacks of a process at one moment, main thread first.

    Attributes:
        source: One of `probing.tables.STACK_SOURCES`: who took it.
        note: What the reader should know about it, if anything.
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
class LabelsRequest:
    """The tokens and labels of the next batch that the training reads.

    Attributes:
        samples: How many samples to show token by token.
        timeout_s: How long to wait for a batch.
    """

    samples: int = 2
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRequest:
    """Something to be recorded in the next steps of the training.

    Attributes:
        what: One of `ARMABLE`.
        steps: In how many steps; 0 ends what is armed.
    """

    what: str
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Some steps of the training to profile.

    Attributes:
        steps: How many, from the end of the step in progress on.
        timeout_s: How long to wait for the end of any one step.
    """

    steps: int
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSample:
    """One sample of a batch, cut at its end where it is long.

    Attributes:
        sample: Its place in the batch.
        length: How many labels it has in all.
        tokens: Token numbers; as many as there are, where labels are not one for each token.
        labels: Their labels; -100 where ignored.
    """

    sample: int
    length: int
    tokens: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenText:
    """What a tokenizer calls a token."""

    token: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsAnswer:
    """Tokens and labels of one batch.

    Attributes:
        origin: Where they were read.
        inputs: Name, type and size of the tokens.
        labels: Name, type and size of the labels.
        step: The training step then, if one is counted.
        waited_s: How long the batch was waited for.
        samples: Samples in the batch.
        read: Samples that all that follows is about.
        trained: Labels that are trained on.
        ignored: Labels that are ignored.
        all_ignored: Samples without any label that is trained on.
        same: The share of trained labels that are the token at their own place.
        next: The share of those that are the token after it.
        previous: The share of those that are the token before it.
        shift: ``equal``, ``shifted by one``, ``shifted backwards`` or ``unrelated``; None where
            there is nothing to compare.
        tokenizer: The class of the tokenizer that gave the texts, if there is one.
        texts: Of the tokens and labels that are shown.
        shown: The samples that were asked for.
    """

    origin: str
    inputs: str
    labels: str
    step: int | None
    waited_s: float
    samples: int
    read: int
    trained: int
    ignored: int
    all_ignored: tuple[int, ...]
    same: float | None
    next: float | None
    previous: float | None
    shift: str | None
    tokenizer: str | None
    texts: tuple[TokenText, ...]
    shown: tuple[LabelledSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """Something that is recorded on demand, and how far it is.

    Attributes:
        what: One of `ARMABLE`.
        number: Which arming it is, counted from 1.
        state: ``waiting`` for a step to begin; ``armed``; ``over``; ``failed``.
        steps: The steps asked for.
        done: The steps that are done.
        found: Rows written.
        first_step: The first step; None before it.
        last_step: The last one, or that of the finding; None before it.
        still_s: How long ago a step has ended.
        reason: Why it failed.
        notes: What the reader should know.
    """

    what: str
    number: int
    state: str
    steps: int
    done: int
    found: int
    still_s: float
    first_step: int | None = None
    last_step: int | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmedAnswer:
    """What is recorded on demand: the last arming of each kind."""

    armed: tuple[Armed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileProgress:
    """How far the profile in hand is.

    Attributes:
        state: ``idle`` when none is; ``waiting`` for the end of a step; ``running``; ``ending``
            while its result is written; ``refused`` or ``cancelled`` until that is told.
        steps: How many steps were asked for.
        done: How many of them have been profiled.
    """

    state: str
    steps: int = 0
    done: int = 0


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
class DetachRequest:
    """The agent is to leave the process.

    Attributes:
        keep_record: Leave the run folder with what was recorded.
    """

    keep_record: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Detached:
    """The agent is leaving.

    Attributes:
        kept: The run folder, if the record stays.
        left: What cannot be taken back, one sentence each.
    """

    pid: int
    kept: str | None
    left: tuple[str, ...]


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
    """The rows of one live table, column names beside them.

    Attributes:
        note: What the reader should know about them, if anything.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...]
    note: str | None = None


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
