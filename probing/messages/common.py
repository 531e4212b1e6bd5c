"""What travels between a client, the agent and the SQL worker: objects to bytes and back.

Rules of this file: no socket, no clock, no thread. Every body is JSON, described by a frozen
dataclass and made by `probing.messages.codec`. Rows of answers travel as an Arrow IPC stream, which
is not made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..errors import BadRequest, ProbingError, RemoteError
from ..tables import TABLES_BY_NAME, Column, ColumnType, Table, TableKind
from .about.eval import (
    EvalRequest as EvalRequest,  # noqa: PLC0414
    EvalResult as EvalResult,  # noqa: PLC0414
)
from .about.fit import (
    FitAnswer as FitAnswer,  # noqa: PLC0414
    FitPart as FitPart,  # noqa: PLC0414
    FitPeak as FitPeak,  # noqa: PLC0414
    FitRequest as FitRequest,  # noqa: PLC0414
    FitShape as FitShape,  # noqa: PLC0414
)
from .about.stacks import (
    Awaited as Awaited,  # noqa: PLC0414
    Backtrace as Backtrace,  # noqa: PLC0414
    Frame as Frame,  # noqa: PLC0414
    Local as Local,  # noqa: PLC0414
    TaskStack as TaskStack,  # noqa: PLC0414
    ThreadBytes as ThreadBytes,  # noqa: PLC0414
    ThreadStack as ThreadStack,  # noqa: PLC0414
    WorkDone as WorkDone,  # noqa: PLC0414
)
from .card import (
    Card as Card,  # noqa: PLC0414 - part of the wire, as the next are
    Pong as Pong,  # noqa: PLC0414
)
from .codec import (
    decode as decode,  # noqa: PLC0414
    decode_request as decode_request,  # noqa: PLC0414
    encode as encode,  # noqa: PLC0414
    encode_request as encode_request,  # noqa: PLC0414
)
from .frozen import InNotebooks, dataclass
from .limits import TimeLimit

ARROW_TYPE = "application/vnd.apache.arrow.stream"
JSON_TYPE = "application/json"
METRICS_TYPE = "application/openmetrics-text"
TRACE_TYPE = "application/gzip"
MOST_STEPS = 1000
"""The most steps of one profile."""
ARMABLE = ("nan", "gradients", "leak")
"""What can be recorded on demand."""
REFERRERS = "referrers"
"""Armed with addresses: who refers to the storages there is looked for, at the ends of steps."""
CLEAN = "clean"
"""Armed with what to do: memory is cleaned up at the end of a step, with a row before and after."""
EVAL_INTERRUPTED = "EvalInterrupted"
"""The `error_type` of code that was ended by its time limit."""
TRUNCATED_KEY = b"probing.truncated"
NOTES_KEY = b"probing.notes"
"""Schema metadata of an Arrow answer: why it was cut, absent when it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """One SQL statement.

    Attributes:
        timeout_s: The client's time limit; the agent's applies if shorter.
        max_rows: The most rows wanted; the agent's limit applies if smaller.
    """

    sql: str
    timeout_s: TimeLimit | None = None
    max_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRequest:
    """Something to be recorded in the next steps of the training.

    Attributes:
        what: One of `ARMABLE`, or `REFERRERS`, or `CLEAN`.
        steps: In how many steps; 0 ends what is armed.
        addresses: Where the storages are that `REFERRERS` asks about.
        cleaning: What `CLEAN` is to do: fields of `marks.Cleaning`.
        most_held_s: How long the training may be held in all, where somebody asks who may not know
            that; None: as long as it takes.
    """

    what: str
    steps: int
    addresses: tuple[int, ...] = ()
    cleaning: tuple[str, ...] = ()
    most_held_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Some steps of the training to profile.

    Attributes:
        steps: How many.
        timeout_s: How long to wait for the end of any one step.
    """

    steps: int
    timeout_s: TimeLimit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """Something that is recorded on demand, and how far it is.

    Attributes:
        what: One of `ARMABLE`, or `REFERRERS`, or `CLEAN`.
        number: Which arming it is, counted from 1.
        state: ``waiting`` for a step to begin; ``armed``; ``over``; ``failed``.
        steps: The steps asked for.
        done: The steps that are done.
        found: Rows written.
        first_step: The first step; None before it.
        last_step: The last one, or that of the finding; None before it.
        still_s: How long ago a step has ended.
        reason: Why it failed.
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
class ArmedAnswer(InNotebooks):
    """What is recorded on demand: the last arming of each kind."""

    armed: tuple[Armed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileProgress:
    """How far the profile under way is.

    Attributes:
        state: ``idle``; ``waiting`` for the end of a step; ``running``; ``ending`` while its result
            is written; ``refused`` or ``cancelled`` until that is told.
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
class SettingsAnswer(InNotebooks):
    """All settings of a process.

    Attributes:
        unknown: A sentence for each variable that only looks like a setting.
    """

    settings: tuple[SettingValue, ...]
    unknown: tuple[str, ...] = ()


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
class OwnColumn:
    """A column of a table that probing itself does not declare.

    Attributes:
        type: `int64`, `float64`, `bool`, `text`, `enum` or `time`.
    """

    name: str
    type: str
    doc: str = ""
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTable:
    """What a table is that the script of a process or a plugin has declared.

    Attributes:
        origin: Who has: `script`, or `plugin NAME`.
    """

    doc: str
    origin: str
    columns: tuple[OwnColumn, ...]

    @classmethod
    def of(cls, table: Table) -> OwnTable:
        """What is told of a table."""
        columns = (
            OwnColumn(name=c.name, type=c.type, doc=c.doc, unit=c.unit) for c in table.columns
        )
        return cls(doc=table.doc, origin=table.origin, columns=tuple(columns))

    def table(self, name: str, kind: str) -> Table:
        """The table that was told of."""
        columns = (
            Column(name=c.name, type=cast("ColumnType", c.type), doc=c.doc, unit=c.unit)
            for c in self.columns
        )
        return Table(
            name=name,
            doc=self.doc,
            kind=cast("TableKind", kind),
            columns=tuple(columns),
            origin=self.origin,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLiveTable:
    """A live table that a plugin has added."""

    name: str
    own: OwnTable


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLiveTables:
    """All of a process, as its run folder tells them."""

    tables: tuple[OwnLiveTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table as it stands in a process.

    Attributes:
        rows: Rows that can be read now; None for a live table.
        written: Rows written since the start.
        overwritten: Rows that made room for newer ones.
        dropped: Rows that could not be written, or not whole: without the numbers of a device that
            was too far behind.
        oldest_ns: When the oldest readable row started, since the epoch.
        problem: Why the table cannot be read, if it cannot.
        own: What it is, for one that probing itself does not declare.
    """

    name: str
    kind: str
    rows: int | None = None
    written: int | None = None
    overwritten: int | None = None
    dropped: int | None = None
    oldest_ns: int | None = None
    problem: str | None = None
    own: OwnTable | None = None

    def table(self) -> Table | None:
        """What it is; None where that is known neither here nor to who tells."""
        known = TABLES_BY_NAME.get(self.name)
        return known or (self.own.table(self.name, self.kind) if self.own is not None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesAnswer(InNotebooks):
    """All tables of a process."""

    tables: tuple[TableStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRows(InNotebooks):
    """The rows of one live table, column names beside them."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...]
    note: str | None = None

    @classmethod
    def of(cls, table: Table, rows: Iterable[tuple[Any, ...]], note: str | None = None) -> LiveRows:
        """Rows that have all columns of their table, in its order."""
        columns = tuple([column.name for column in table.columns])
        return cls(table=table.name, columns=columns, rows=(*rows,), note=note)

    @classmethod
    def of_dicts(
        cls, table: Table, rows: Iterable[Mapping[str, Any]], note: str | None = None
    ) -> LiveRows:
        """Rows by the names of their columns; those that one has not are None."""
        names = [column.name for column in table.columns]
        return cls.of(table, [tuple([row.get(name) for name in names]) for row in rows], note)

    def dicts(self) -> list[dict[str, Any]]:
        """The rows by the names of their columns; one that the other side has not is None."""
        table = TABLES_BY_NAME.get(self.table)
        nothing = dict.fromkeys(column.name for column in table.columns) if table else {}
        return [{**nothing, **dict(zip(self.columns, row, strict=True))} for row in self.rows]


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
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise BadRequest("the answer is not an error body of probing") from None
