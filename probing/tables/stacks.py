"""The tables of what threads are doing.

Rules of this file: see the package.
"""

from __future__ import annotations

from .records import Table, choice, count, flag, seconds, text

_THREAD_ID = count("thread_id", "The thread's number in the kernel.")
_THREAD_NAME = text("thread_name", "The thread's name in Python.")
_IS_MAIN = flag("is_main", "Whether it is the main thread.")
STACK_SOURCES = ("agent", "py-spy", "agent+py-spy", "proc", "crash", "open rows")
"""Where stacks may come from."""

_SOURCE = choice(
    "source",
    STACK_SOURCES,
    "Where it comes from: the `agent` inside the process; `py-spy` from outside; both,"
    " `agent+py-spy`; only what the kernel tells, `proc`; for a process that has ended,"
    " the file that it left at its `crash`, or the calls that had not returned, `open"
    " rows`.",
)

BACKTRACE = Table(
    name="backtrace",
    kind="live",
    doc="The stack of every Python thread at the moment of the question, main thread first. The"
    " agent's own threads and frames are left out.",
    columns=(
        text("func", "The function's qualified name."),
        text("file", "The source file, as the code object names it."),
        count("lineno", "The line that is being executed."),
        count("depth", "0 for the innermost frame, counted outwards."),
        _THREAD_ID,
        _THREAD_NAME,
        _IS_MAIN,
        choice(
            "kind",
            ("python", "native", "module"),
            "Whether the frame is `python` or `native` code, or a `module` of torch whose call had"
            " not returned when the process ended.",
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
        flag("daemon", "Whether it is a daemon thread."),
        flag("alive", "Whether it is running."),
        text(
            "state",
            "The kernel's word for it: R running, S sleeping, D uninterruptible, T stopped.",
        ),
        seconds("cpu_s", "Processor time it has used, user + system."),
        text("func", "The innermost function it is in."),
        text("file", "The file of that function."),
        count("lineno", "The line being executed there."),
        text(
            "waiting",
            "What it waits for or does, in words, such as `waiting for a lock`; NULL where that is"
            " not known.",
        ),
        flag(
            "holds_gil",
            "Whether it holds the interpreter lock (GIL); NULL where that is not known, as to the"
            " agent.",
        ),
        text(
            "wchan",
            "The function of the kernel that it sleeps in; NULL when it is awake or the kernel"
            " does not tell.",
        ),
        text(
            "awaits",
            "What it waits for that another thread has, such as `the lock self._lock`, `the import"
            " of module x` or `thread x to end`; NULL where it waits for no such thing, or the"
            " agent did not look.",
        ),
        count(
            "holder_thread_id",
            "The number of the thread that has it; NULL where that is not known.",
        ),
        _SOURCE,
    ),
)
