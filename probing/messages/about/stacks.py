"""Stacks as they travel: threads, tasks, and what they wait for.

Rules of this file: as in `probing.messages.common`, which has all of it, too.
"""

from __future__ import annotations

from ..frozen import InNotebooks, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """One local variable and a short text of its value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of a stack.

    Attributes:
        func: Qualified name of the function, or of the module that the process died in.
        file: Source file; the library of a native function.
        lineno: The line being executed; 0 where unknown.
        line: The text of that line.
        kind: ``python``, ``native``, or ``module`` (a torch module whose call had not ended).
        locals: The local variables, if they were asked for.
        call: The text of the one call of that line which it is in, ``loss.item()``; known of the
            innermost frame alone, where its agent looked and the interpreter is 3.11 or newer.
    """

    func: str
    file: str
    lineno: int
    line: str | None = None
    kind: str = "python"
    locals: tuple[Local, ...] | None = None
    call: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """What a thread waits for that another one has: a lock, an import, or the end of itself.

    Attributes:
        kind: ``lock``, ``semaphore``, ``import``, ``thread``, ``task`` that a thread of a pool
            runs, ``queued`` if none has begun it, ``any`` of several tasks, ``process`` of a pool,
            ``coroutine`` of an event loop; or what a thread is to tell: ``event``, ``condition``,
            ``barrier``, ``item`` of a queue, ``room`` in one, ``queue`` to be worked off,
            ``future``.
        what: In words: ``the lock self._lock``, ``the import of module x``, ``thread x to end``,
            ``the task upload``.
        holder_id: The kernel number of the thread that has it, or that a queued task waits for.
        since: The line that took it, or would give it: ``train.py:40 in save``.
        who: Where it is no thread of the process that is known, words about that which fit behind
            `what`: ``whose owner is not known``.
        is_certain: Whether the object or a block of code tells who has it; else it is likely.
        is_settled: Whether the thread slept throughout the look, so that all of this holds for one
            moment.
        has_limit: Whether the wait has a time limit, or that is not known.
    """

    kind: str
    what: str
    holder_id: int | None = None
    since: str | None = None
    who: str | None = None
    is_certain: bool = True
    is_settled: bool = False
    has_limit: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread and its frames, innermost first.

    Attributes:
        thread_id: The thread's number in the kernel; 0 where unknown.
        state: The kernel's letter for its state.
        cpu_s: Processor time used.
        ready_s: How long it has waited for a processor, ready to run.
        sleeps: How often it has gone to sleep.
        holds_gil: Whether it holds the interpreter lock.
        waiting: What it waits for or does, in words.
        wchan: The kernel function that it sleeps in.
        awaits: What it waits for, if a thread has that, and the agent looked.
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
    awaits: Awaited | None = None
    ready_s: float | None = None
    sleeps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStack:
    """A task of asyncio or a greenlet, and its frames, innermost first.

    Attributes:
        kind: ``asyncio`` or ``greenlet``.
        thread_id: The kernel number of the thread it takes turns on; 0 where unknown.
        waiting: What it waits for or does, in words.
    """

    kind: str
    name: str
    frames: tuple[Frame, ...]
    thread_id: int = 0
    waiting: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadBytes:
    """What one thread has read and written by system calls, from files as from anywhere."""

    thread_id: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """What a process has done since it began, as the kernel counts it; None where it does not tell.

    Attributes:
        time_s: When that was, by a monotonic clock of its machine.
        threads: What the job's own threads have read and written.
        children_cpu_s: Processor time of its child processes, and of theirs.
        children_bytes: What the running ones have read and written.
    """

    time_s: float
    threads: tuple[ThreadBytes, ...] = ()
    children_cpu_s: float | None = None
    children_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtrace(InNotebooks):
    """The stacks of a process at one moment, main thread first.

    Attributes:
        source: One of `probing.tables.STACK_SOURCES`: who took it.
        work: What it has done so far: two looks tell whether it makes progress.
        tasks: Tasks and greenlets on its threads, where the agent looked.
    """

    pid: int
    source: str
    threads: tuple[ThreadStack, ...]
    note: str | None = None
    work: WorkDone | None = None
    tasks: tuple[TaskStack, ...] = ()
