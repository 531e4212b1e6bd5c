"""The tables, each declared once.

Rules of this file: what a table holds, in which unit and with which meaning, is
said here and nowhere else. The ring layout, the SQL catalog, ``probing tables``,
the reference page and the tests are derived from these records. No I/O, no clock,
nothing imported but the standard library. The records are named tuples, as are all that the agent
loads at its start: a tenth of what making a dataclass costs.

A *recorded* table lives in a ring file: fixed-width rows that outlive the process.
A *live* table is computed by the agent (or from outside the process) when asked.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

SCHEMA = "python"

ColumnType = Literal["int64", "float64", "bool", "text", "enum", "time"]
"""``int64``, ``float64`` and ``bool`` are what they say. ``text`` is a name interned once
per process. ``enum`` is one of the column's ``values``. ``time`` is nanoseconds since the
epoch, stored as the monotonic clock's reading and shifted when it is read. All may be NULL."""

TableKind = Literal["recorded", "live"]


class Scaled(NamedTuple):
    """A column that is another one times a constant: stored once, readable in two units."""

    column: str
    factor: float


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        name: What SQL calls it.
        type: See `ColumnType`.
        doc: One sentence for the person who reads the answer.
        unit: The unit of a number, or None where it has none.
        values: The possible values of an ``enum``, in the order of their codes.
        scaled: Set for a column that is computed from a stored one when it is read.
        closing: True when the value is known only as the row is completed.
        bits: How wide an ``int64`` is stored. Below 64 it is stored unsigned and never NULL.
    """

    name: str
    type: ColumnType
    doc: str
    unit: str | None = None
    values: tuple[str, ...] = ()
    scaled: Scaled | None = None
    closing: bool = False
    bits: Literal[8, 32, 64] = 64


class Table(NamedTuple):
    """One table of the schema ``python``."""

    name: str
    doc: str
    kind: TableKind
    columns: tuple[Column, ...]

    @property
    def full_name(self) -> str:
        """The name with its schema, as it is written in SQL."""
        return f"{SCHEMA}.{self.name}"

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns that a row holds, without those computed from others."""
        return tuple(column for column in self.columns if column.scaled is None)


STAGES = ("forward", "backward", "optimizer", "step")

_STEP = Column(
    name="step",
    type="int64",
    bits=32,
    doc="The training step: grows by one each time the optimizer has stepped; in a process that"
    " never steps an optimizer, each time the root module has been called.",
)
_SEQ = Column(
    name="seq",
    type="int64",
    doc="The row's number in this table since the process started, counted from 1.",
)
_DURATION = Column(
    name="duration",
    type="float64",
    unit="s",
    scaled=Scaled(column="duration_ns", factor=1e-9),
    doc="How long it took by the monotonic clock; NULL while it is still running.",
)
_ALLOCATED = Column(
    name="allocated",
    type="float64",
    unit="MiB",
    scaled=Scaled(column="allocated_bytes", factor=2.0**-20),
    doc="`allocated_bytes` in MiB.",
)
_START_NS = Column(name="start_ns", type="time", unit="ns", doc="When it started, since the epoch.")
_DURATION_NS = Column(
    name="duration_ns",
    type="int64",
    unit="ns",
    closing=True,
    doc="`duration` as the exact integer.",
)
_ALLOCATED_BYTES = Column(
    name="allocated_bytes",
    type="int64",
    unit="bytes",
    closing=True,
    doc="Memory in use as it ended: what the accelerator's allocator has handed out; in a"
    " process that uses none, the resident set. Sampled every few milliseconds, not at each row.",
)
_THREAD = Column(
    name="thread_id",
    type="int64",
    bits=32,
    doc="The thread it ran in, by its number in the kernel.",
)
_FAILED = Column(
    name="failed",
    type="bool",
    doc="Whether it ended by an exception; NULL while it is still running.",
)

TORCH_TRACE = Table(
    name="torch_trace",
    kind="recorded",
    doc="Every call of every torch module, every optimizer step and every whole step. A row is"
    " written when the call starts and completed when it ends, so an open row (`duration IS NULL`)"
    " is what the process is inside of right now, or was when it died.",
    columns=(
        _STEP,
        Column(
            name="module",
            type="text",
            doc="The module's qualified name in its root, such as `blocks.3.attn`; the class name"
            " for a root and for an optimizer. Wrappers (DDP, FSDP, torch.compile, activation"
            " checkpointing) leave no trace in it. A shared module goes by its first name.",
        ),
        Column(
            name="stage",
            type="enum",
            values=STAGES,
            doc="`forward`, `backward`, `optimizer` (the optimizer's step) or `step` (from the end"
            " of one optimizer step to the end of the next).",
        ),
        _DURATION,
        _ALLOCATED,
        Column(name="class", type="text", doc="The class of the module or optimizer."),
        Column(name="root", type="text", doc="The class of the root module it belongs to."),
        Column(
            name="depth",
            type="int64",
            bits=8,
            doc="How many module calls this one is nested in, 255 at most.",
        ),
        Column(
            name="recomputed",
            type="bool",
            doc="Whether it ran inside the backward pass (activation checkpointing).",
        ),
        Column(name="training", type="bool", doc="Whether its root was in training mode."),
        _FAILED,
        _THREAD,
        _START_NS,
        _DURATION_NS,
        _ALLOCATED_BYTES,
        _SEQ,
    ),
)

STEPS = Table(
    name="steps",
    kind="recorded",
    doc="One row per training step. The last one is open: it is the step in progress.",
    columns=(
        _STEP,
        _DURATION,
        _ALLOCATED,
        Column(
            name="optimizer",
            type="text",
            closing=True,
            doc="The class of the optimizer that ended it; NULL for a step of inference and for"
            " the step in progress.",
        ),
        _FAILED,
        _THREAD,
        _START_NS,
        _DURATION_NS,
        _ALLOCATED_BYTES,
        _SEQ,
    ),
)

_THREAD_ID = Column(name="thread_id", type="int64", doc="The thread's number in the kernel.")
_THREAD_NAME = Column(name="thread_name", type="text", doc="The thread's name in Python.")
_IS_MAIN = Column(name="is_main", type="bool", doc="Whether it is the main thread.")
STACK_SOURCES = ("agent", "py-spy", "agent+py-spy", "proc", "crash", "open rows")
"""Where stacks may come from."""

_SOURCE = Column(
    name="source",
    type="enum",
    values=STACK_SOURCES,
    doc="Where it comes from: the `agent` inside the process; `py-spy` from outside; both,"
    " `agent+py-spy`; only what the kernel tells, `proc`; for a process that has ended, the file"
    " that it left at its `crash`, or the calls that had not returned, `open rows`.",
)

BACKTRACE = Table(
    name="backtrace",
    kind="live",
    doc="The stack of every Python thread at the moment of the question, main thread first. The"
    " agent's own threads and frames are left out.",
    columns=(
        Column(name="func", type="text", doc="The function's qualified name."),
        Column(name="file", type="text", doc="The source file, as the code object names it."),
        Column(name="lineno", type="int64", doc="The line that is being executed."),
        Column(name="depth", type="int64", doc="0 for the innermost frame, counted outwards."),
        _THREAD_ID,
        _THREAD_NAME,
        _IS_MAIN,
        Column(
            name="kind",
            type="enum",
            values=("python", "native", "module"),
            doc="Whether the frame is `python` or `native` code, or a `module` of torch whose call"
            " had not returned when the process ended.",
        ),
        _SOURCE,
    ),
)

THREADS = Table(
    name="threads",
    kind="live",
    doc="Every Python thread of the process, main thread first; the agent's own are left out.",
    columns=(
        _THREAD_ID,
        _THREAD_NAME,
        _IS_MAIN,
        Column(name="daemon", type="bool", doc="Whether it is a daemon thread."),
        Column(name="alive", type="bool", doc="Whether it is running."),
        Column(
            name="state",
            type="text",
            doc="The kernel's word for it: R running, S sleeping, D uninterruptible, T stopped.",
        ),
        Column(
            name="cpu_s", type="float64", unit="s", doc="Processor time it has used, user + system."
        ),
        Column(name="func", type="text", doc="The innermost function it is in."),
        Column(name="file", type="text", doc="The file of that function."),
        Column(name="lineno", type="int64", doc="The line being executed there."),
        Column(
            name="waiting",
            type="text",
            doc="What it waits for or does, in words, such as `waiting for a lock`; NULL where"
            " that is not known.",
        ),
        Column(
            name="holds_gil",
            type="bool",
            doc="Whether it holds the interpreter lock (GIL); NULL where that is not known, as to"
            " the agent.",
        ),
        Column(
            name="wchan",
            type="text",
            doc="The function of the kernel that it sleeps in; NULL when it is awake or the kernel"
            " does not tell.",
        ),
        _SOURCE,
    ),
)

TABLES: tuple[Table, ...] = (TORCH_TRACE, STEPS, BACKTRACE, THREADS)

TABLES_BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}

RECORDED_TABLES: tuple[Table, ...] = tuple(t for t in TABLES if t.kind == "recorded")
