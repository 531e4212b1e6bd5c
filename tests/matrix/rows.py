"""The rows of the matrix, as data.

Rules of this file: what a process must answer is written here and in `worlds`, and nowhere else.
What several rows have in common is a function that makes cells.
"""

from __future__ import annotations

from .cells import (
    ATTACH,
    BACKTRACE,
    EVAL,
    HASTY_ATTACH,
    LATER_EVAL,
    QUERY,
    QUERY_FRAMES,
    STRANGE_BACKTRACE,
    UNSAFE,
    Cell,
    Row,
)
from .worlds import DEAD, OUTSIDE, WORLDS, attached

_D_STATE = frozenset("SD")
_HOLDS = 'thread \\d+ "{thread}" holds the interpreter lock in {place}'
_INSIDE = "taken by (the agent|py-spy from outside)"
_NO_LOCK = r"no thread holds the interpreter lock|does not wait in a system call"


def _free(
    name: str,
    title: str,
    func: str,
    wait: str,
    *,
    program: str = "stuck",
    rows: int = 0,
    **more: bool,
) -> Row:
    """A process whose interpreter lock is free, or let go of again and again."""
    stack = (rf"\bin {func}$", f": {wait}$")
    return Row(
        name=name,
        title=title,
        program=program,
        arguments=(name,),
        needs_torch=program != "stuck",
        is_slow=program != "stuck",
        cells=(
            Cell(question=STRANGE_BACKTRACE, shows="yes", says=(OUTSIDE, *stack)),
            *attached(),
            Cell(question=BACKTRACE, shows="yes", says=(_INSIDE, *stack)),
            Cell(question=QUERY, shows="yes", says=(f'"n":{rows}}}',)),
            Cell(question=QUERY_FRAMES, shows="yes", says=(f'"func":"{func}"',)),
            Cell(question=EVAL, shows="yes", says=("^42$",)),
            Cell(question=UNSAFE, shows="no: not needed", code=3, says=(_NO_LOCK,)),
        ),
    )


def _held(
    name: str,
    title: str,
    place: str,
    *,
    thread: str = "MainThread",
    can_be_borrowed: bool = True,
    program: str = "stuck",
    rows: int = 0,
) -> Row:
    """A process in which a C call keeps the interpreter lock for ever."""
    holder = _HOLDS.format(thread=thread, place=place)
    native = (holder, '^  Native "')
    unsafe = (
        Cell(question=UNSAFE, shows="yes", says=("^42$", "^note: .* may end early or go wrong"))
        if can_be_borrowed
        else Cell(
            question=UNSAFE, shows="no: not in a call", code=3, says=("not wait in a system call",)
        )
    )
    return Row(
        name=f"{program}-{name}" if program != "stuck" else name,
        title=title,
        program=program,
        arguments=(name,),
        # What uses a processor for ever leaves it to the other rows.
        prefix=() if can_be_borrowed else ("nice", "-n", "10"),
        needs_torch=program != "stuck",
        is_slow=True,
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="yes, native",
                says=(OUTSIDE, *native),
            ),
            Cell(
                question=HASTY_ATTACH,
                shows="waits",
                code=5,
                says=("the agent of process {pid} cannot start yet", holder, "It starts by itself"),
            ),
            Cell(question=LATER_EVAL, shows="no: waits", code=5, says=(holder,)),
            Cell(question=BACKTRACE, shows="yes, native", says=native),
            Cell(question=QUERY, shows="yes", says=(f'"n":{rows}}}',)),
            Cell(
                question=QUERY_FRAMES,
                shows="yes, native",
                says=('"kind":"native","source":"py-spy"', holder),
            ),
            Cell(question=EVAL, shows="no: says who", code=5, says=("did not answer", holder)),
            unsafe,
        ),
    )


def _uninterruptible(name: str, title: str, func: str, *, is_held: bool = False) -> Row:
    """A process with a thread in state D."""
    stack = (rf"\bin {func}$", "in an uninterruptible wait for a new process to begin")
    refusal = ("uninterruptible wait of the kernel, which nothing can borrow", "`backtrace` works")
    holder = _HOLDS.format(thread="MainThread", place="_vfork")
    can_run = (
        Cell(question=EVAL, shows="no: says who", code=5, says=("uninterruptible wait", holder))
        if is_held
        else Cell(question=EVAL, shows="yes", says=("^42$",))
    )
    return Row(
        name=name,
        title=title,
        arguments=(name,),
        states=_D_STATE,
        is_slow=is_held,
        cells=(
            Cell(question=STRANGE_BACKTRACE, shows="yes", says=(OUTSIDE, *stack)),
            Cell(question=ATTACH, shows="refused: D", code=4, says=refusal),
            Cell(question=BACKTRACE, shows="yes", says=stack),
            Cell(question=QUERY, shows="yes", says=('"n":0',)),
            Cell(question=QUERY_FRAMES, shows="yes", says=(f'"func":"{func}"',)),
            can_run,
            Cell(question=UNSAFE, shows="refused: D", code=4, says=refusal),
        ),
    )


_LOCK_FREE = (
    _free("busy", "healthy, busy in Python", "busy", "(running.*|waiting for the interpreter.*)"),
    _free("lock", "blocked in a lock", "lock", "waiting for a lock"),
    _free("sleep", "blocked in sleep", "sleep", "sleeping"),
    _free("c_sleep", "blocked in C", "c_sleep", "sleeping"),
    _free("socket", "blocked in a socket", "socket", "waiting for data from a socket"),
    _free(
        "mp_queue",
        "blocked in a process queue",
        "mp_queue",
        "waiting for an item from a queue between processes",
    ),
    _free(
        "data_loader",
        "blocked in a DataLoader queue",
        "data_loader",
        r"waiting for a batch from (a DataLoader worker|DataLoader worker \d+ \(pid \d+\))",
        program="hung",
        rows=2,
    ),
    _free(
        "all_reduce",
        "blocked in dist.all_reduce",
        "all_reduce",
        "waiting for the other ranks in the collective all_reduce",
        program="hung",
        rows=2,
    ),
)

_LOCK_HELD = (
    _held("gil_sleep", "GIL held: asleep in C", "gil_sleep"),
    _held("gil_regex", "GIL held: endless regex", "match", can_be_borrowed=False),
    _held("gil_spin", "GIL held: loop in C", "gil_spin", can_be_borrowed=False),
    _held("gil_thread", "GIL held: by another thread", "gil_sleep", thread="gil-holder"),
    _held("mutex_vs_gil", "GIL held: dead-lock in C", "mutex_vs_gil"),
    _held("gil", "GIL held: in a training", "gil", program="hung", rows=2),
)

_STOPPED = Row(
    name="stopped",
    title="stopped by SIGSTOP",
    arguments=("stopped",),
    states=frozenset("T"),
    cells=(
        Cell(
            question=STRANGE_BACKTRACE,
            shows="yes",
            says=(OUTSIDE, r"\bin stopped$", ": stopped by a signal$"),
        ),
        Cell(question=ATTACH, shows="refused: CONT", code=4, says=("`kill -CONT {pid}` lets",)),
        Cell(
            question=BACKTRACE,
            shows="yes",
            says=(r"\bin stopped$", "kill -CONT {pid} lets it go on"),
        ),
        Cell(question=QUERY, shows="yes", says=('"n":0',)),
        Cell(question=QUERY_FRAMES, shows="yes", says=('"func":"stopped"', '"source":"py-spy"')),
        Cell(question=EVAL, shows="no: CONT", code=5, says=("stopped by a signal; kill -CONT",)),
        Cell(question=UNSAFE, shows="refused: CONT", code=4, says=("`kill -CONT {pid}` lets",)),
    ),
)


ROWS: tuple[Row, ...] = (
    *_LOCK_FREE,
    *_LOCK_HELD,
    _uninterruptible("d_state", "state D, GIL free", "_vfork"),
    _uninterruptible("d_state_gil", "state D, GIL held", "_vfork", is_held=True),
    _uninterruptible("d_state_thread", "one thread in state D", "_vfork"),
    _STOPPED,
    *DEAD,
    *WORLDS,
)
"""All of them, in the order in which they are printed."""
