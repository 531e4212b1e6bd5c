"""The tables of what threads are doing.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Column, Table

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
        Column(
            name="awaits",
            type="text",
            doc="What it waits for that another thread has, such as `the lock self._lock`, `the"
            " import of module x` or `thread x to end`; NULL where it waits for no such thing, or"
            " the agent did not look.",
        ),
        Column(
            name="holder_thread_id",
            type="int64",
            doc="The number of the thread that has it; NULL where that is not known.",
        ),
        _SOURCE,
    ),
)
