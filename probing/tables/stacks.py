"""The tables of what threads are doing."""

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
    "Who took it: the `agent` inside the process; `py-spy` from outside; both,"
    " `agent+py-spy`; the kernel alone, `proc`; of an ended process the file written at its"
    " `crash`, or the calls that had not returned, `open rows`.",
)

BACKTRACE = Table(
    name="backtrace",
    kind="live",
    doc="The stack of every Python thread now, main thread first, without the agent's own.",
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
            "`python` or `native` code, or a `module` of torch whose call was open when the"
            " process ended.",
        ),
        _SOURCE,
    ),
)

THREADS = Table(
    name="threads",
    kind="live",
    doc="Every Python thread of the process, main thread first, without the agent's own.",
    columns=(
        _THREAD_ID,
        _THREAD_NAME,
        _IS_MAIN,
        flag("daemon", "Whether it is a daemon thread."),
        flag("alive", "Whether it is running."),
        text(
            "state",
            "The kernel's state of it: R running, S sleeping, D uninterruptible, T stopped.",
        ),
        seconds("cpu_s", "Processor time it has used, user + system."),
        text("func", "The innermost function it is in."),
        text("file", "The file of that function."),
        count("lineno", "The line being executed there."),
        text("waiting", "What it waits for or does, such as `waiting for a lock`."),
        flag("holds_gil", "Whether it holds the GIL; NULL where unknown, as to the agent."),
        text("wchan", "The kernel function that it sleeps in."),
        text(
            "awaits",
            "What another thread has that it waits for, such as `the lock self._lock`, `the"
            " import of module x` or `thread x to end`.",
        ),
        count("holder_thread_id", "The number of the thread that has it."),
        _SOURCE,
    ),
)
